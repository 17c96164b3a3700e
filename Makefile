# Newcomers need two commands, `make run` and `make test`; `make help` lists the others.
# Every target creates .venv, and recreates it only when the lock file has changed.

PYTHON ?= python3
VENV := .venv
IN := $(VENV)/bin/python

# The name of a new revision, e.g. make migration NAME=add_lane
NAME ?=
# Arguments for pytest, e.g. make test ARGS="-k claim -x"
ARGS ?=
# Number of parallel tests; 0 for a debugger. Many tests mostly wait, so it may exceed the number of cores.
JOBS ?= 4
# The languages of `make clients`, e.g. make clients CLIENTS=python,node (unset: all)
CLIENTS ?=
# The embedded PostgreSQL to test on, e.g. make test PG=16 (unset: see CONTRIBUTING.md)
PG ?=
# How long `make stress` lasts, and the seed of its choices (unset: a new one)
SECONDS ?= 300
SEED ?=
# SERVE=1: `make example-…` keeps running, for a look at the page
export SERVE ?=
# Of `make chaos` and `make bench`: SHORT=1 for a few of the faults, and to try that the benchmarks run
SHORT ?=

# The tests start hundreds of processes. Each of them would compile everything that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv run test check check-page example-ingestion example-simulation clients chaos stress bench coverage screenshots format format-page migration lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      start PostgreSQL and reactor on this machine; Ctrl-C stops them'
	@echo 'make test     run the tests against a real PostgreSQL (PG=16 or PG=18: its version; ARGS="-k word": a selection)'
	@echo 'make check    formatting, lint, types (of a user, too), import rules; the page too, where Node is installed'
	@echo 'make example-ingestion, make example-simulation'
	@echo '              run an application of examples/, and check what it did (SERVE=1: keep it running)'
	@echo 'make clients  install the client libraries of other languages, and test each of them (CLIENTS=python,node: these)'
	@echo 'make chaos    crash, freeze, fill, cut off and move servers and pods while jobs run; kill pods 200 times;'
	@echo '              race 1,000 fan-ins (about 12 minutes; SHORT=1: four of the faults only, 2 minutes)'
	@echo 'make stress   run everything that the SQL core does at once, and check it against a model (SECONDS=60 SEED=7 PG=15)'
	@echo 'make bench    measure inserts, claims, drains, streams, slow links and growing costs, and write docs/costs.md'
	@echo '              (about 25 minutes; SHORT=1: only try that they run)'
	@echo 'make coverage   write docs/coverage.md: what the four systems can do, and the tests that prove it'
	@echo 'make screenshots   create docs/images from a real run (needs Chromium)'
	@echo 'make format   fix formatting and import order'
	@echo 'make migration NAME=add_x   create a revision from the changes in sql/schema (without NAME: rewrite 0001)'
	@echo 'make venv     create .venv from the lock file'
	@echo 'make lock     regenerate the lock files from pyproject.toml'
	@echo 'make clean    remove .venv and build products'

venv: $(VENV)/.made

$(VENV)/.locked: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required; $(PYTHON) is " + sys.version.split()[0] + ". Choose another one: make PYTHON=python3.12 ...")'
	@echo 'Creating $(VENV) from requirements-dev.lock; this takes about half a minute.'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(IN) -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.made: $(VENV)/.locked pyproject.toml
	@$(IN) -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@

run: venv
	@$(IN) -m reactor up

test: venv
	@REACTOR_TEST_PG=$(PG) $(IN) -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

example-ingestion: venv
	@cd examples/ingestion && ../../$(IN) -m ingestion_app

example-simulation: venv
	@cd examples/simulation && ../../$(IN) -m simulation_app

check: venv check-page
	@$(IN) -m ruff format --check --quiet . || { echo 'Formatting differs: run `make format`.'; exit 1; }
	@$(IN) -m ruff check --quiet .
	@$(IN) -m mypy
	@$(IN) -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())'
	@REACTOR_TEST_TYPES=1 $(IN) -m pytest -q tests/typing

# The page's tools, where Node is installed; with REACTOR_CHECK_PAGE=required a missing Node is an error.
NODE := $(shell command -v node 2>/dev/null)
NPM := $(shell command -v npm 2>/dev/null)
NODE_TOOLS := $(if $(NODE),$(if $(NPM),node_modules/.made))
PAGE := 'http/reactor_http/page/*.{js,ts,css,html}' 'examples/*/*/page/*.{js,css,html}' 'tests/clients/node/**/*.mjs'

node_modules/.made: package-lock.json
	@npm ci --loglevel error --no-progress >/dev/null
	@touch $@

check-page: $(NODE_TOOLS)
ifneq ($(NODE_TOOLS),)
	@node_modules/.bin/prettier --log-level warn --check $(PAGE) || { echo 'Formatting differs: run `make format`.'; exit 1; }
	@node_modules/.bin/tsc --project .
else ifeq ($(REACTOR_CHECK_PAGE),required)
	@echo 'The page can not be checked: node and npm are missing (apt-get install nodejs npm).'; exit 1
else
	@echo 'The page is not checked: node and npm are missing (apt-get install nodejs npm).'
endif

comma := ,
# The table shows failures too, so it is written in any case, unless only some clients ran.
clients: venv
	@$(IN) tests/clients/install.py $(subst $(comma), ,$(CLIENTS))
	@mkdir -p build/clients
	@REACTOR_TEST_CLIENTS='$(or $(CLIENTS),all)' REACTOR_TEST_PG=$(PG) $(IN) -m pytest -n $(JOBS) --dist loadgroup \
	  --junitxml build/clients/results.xml tests/clients $(ARGS); \
	  status=$$?; $(if $(CLIENTS),,$(IN) -m tests.clients.table build/clients/results.xml;) exit $$status

chaos: venv
	@REACTOR_TEST_CHAOS=$(if $(SHORT),short,all) $(IN) -m pytest tests/chaos -s -rs --timeout 600 $(ARGS)
ifeq ($(SHORT),)
	@REACTOR_TEST_CHAOS_KILLS=200 $(IN) -m pytest tests/guarantees/test_chaos.py -s --timeout 1800 $(ARGS)
	@REACTOR_TEST_RACES=1000 $(IN) -m pytest tests/schema/test_dependencies.py -k at_once --timeout 1800 $(ARGS)
endif

# First the proof that it finds something, in about a minute; then the run itself.
stress: venv
	@REACTOR_TEST_STRESS_SECONDS=$(SECONDS) REACTOR_TEST_STRESS_SEED=$(SEED) REACTOR_TEST_PG=$(PG) \
	  $(IN) -m pytest tests/stress -s --timeout 3600 $(ARGS)

bench: venv
ifneq ($(SHORT),)
	@REACTOR_TEST_BENCH=1 $(IN) -m pytest tests/test_bench.py $(ARGS)
else
	@$(IN) bench/inserts.py
	@$(IN) bench/claims.py
	@$(IN) bench/pipelines.py
	@$(IN) bench/drain.py
	@$(IN) bench/streams.py
	@$(IN) bench/latency.py
	@$(IN) bench/core.py
	@$(IN) bench/core.py --durable --only lone
	@$(IN) bench/costs.py --full --write
endif

coverage: venv
	@$(IN) -m tests.support.coverage

screenshots: venv
	@PYTHONPATH=examples/ingestion:examples/simulation $(IN) -m tests.page.screenshots

format: venv format-page
	@$(IN) -m ruff check --quiet --fix-only --select I .
	@$(IN) -m ruff format .

format-page: $(NODE_TOOLS)
ifneq ($(NODE_TOOLS),)
	@node_modules/.bin/prettier --log-level warn --write $(PAGE)
endif

migration: venv
	@$(IN) migrations/freeze.py $(NAME)

# uv, unlike pip, resolves for all platforms and Python versions at once; nothing else here needs it.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -qq 'uv>=0.9'
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --group build pyproject.toml -o requirements.lock $(UPGRADE)
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --extra embedded --extra fast --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock $(UPGRADE)
	for name in python streams generated; do \
	  build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --custom-compile-command 'make lock' tests/clients/$$name/requirements.in -o tests/clients/$$name/requirements.lock $(UPGRADE); \
	done

clean:
	rm -rf $(VENV) node_modules tests/clients/node/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
