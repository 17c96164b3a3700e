# Two commands for newcomers, `make run` and `make test`; `make help` lists the rest.
# Every target makes .venv itself, and again only when the lock file changed.

PYTHON ?= python3
VENV := .venv
IN := $(VENV)/bin/python

# Given to pytest, e.g. make test ARGS="-k claim -x"
ARGS ?=
# How many tests at once; 0 for a debugger. Many of them wait for something, so more than there are cores.
JOBS ?= 4
# The embedded PostgreSQL to test on, e.g. make test PG=16 (unset: see CONTRIBUTING.md)
PG ?=

.PHONY: help venv run test check check-page chaos bench screenshots format format-page lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      start PostgreSQL and reactor on this machine, until Ctrl-C'
	@echo 'make test     run the tests against a real PostgreSQL (PG=16 or PG=18: that version; ARGS="-k word": some)'
	@echo 'make check    formatting, lint, types, import rules; the page too, where Node is installed'
	@echo 'make chaos    kill pods 200 times while pipelines run, and race 1,000 fan-ins; every row must come out once (about 5 minutes)'
	@echo 'make bench    measure inserts, claims, drains and streams, as ratios within one run (about 15 minutes, on an idle machine)'
	@echo 'make screenshots   make docs/images from a real run (needs Chromium)'
	@echo 'make format   put formatting and import order right'
	@echo 'make venv     only make .venv from the lock file'
	@echo 'make lock     write the lock files anew from pyproject.toml'
	@echo 'make clean    remove .venv and everything built'

venv: $(VENV)/.made

$(VENV)/.locked: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and $(PYTHON) is " + sys.version.split()[0] + ". Choose another: make PYTHON=python3.12 ...")'
	@echo 'Making $(VENV) from requirements-dev.lock: half a minute, once.'
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

check: venv check-page
	@$(IN) -m ruff format --check --quiet . || { echo 'Formatting differs: run `make format`.'; exit 1; }
	@$(IN) -m ruff check --quiet .
	@$(IN) -m mypy
	@$(IN) -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())'

# The page's tools, where Node is installed; with REACTOR_CHECK_PAGE=required a missing Node is an error.
NODE := $(shell command -v node 2>/dev/null)
NPM := $(shell command -v npm 2>/dev/null)
NODE_TOOLS := $(if $(NODE),$(if $(NPM),node_modules/.made))
PAGE := 'http/reactor_http/page/*.{js,ts,css,html}'

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

chaos: venv
	@REACTOR_TEST_CHAOS_KILLS=200 $(IN) -m pytest tests/guarantees/test_chaos.py -s --timeout 1800 $(ARGS)
	@REACTOR_TEST_RACES=1000 $(IN) -m pytest tests/schema/test_dependencies.py -k at_once --timeout 1800 $(ARGS)

bench: venv
	@$(IN) bench/inserts.py
	@$(IN) bench/claims.py
	@$(IN) bench/pipelines.py
	@$(IN) bench/drain.py
	@$(IN) bench/streams.py

screenshots: venv
	@$(IN) -m tests.page.screenshots

format: venv format-page
	@$(IN) -m ruff check --quiet --fix-only --select I .
	@$(IN) -m ruff format .

format-page: $(NODE_TOOLS)
ifneq ($(NODE_TOOLS),)
	@node_modules/.bin/prettier --log-level warn --write $(PAGE)
endif

# uv resolves for every platform and Python at once, which pip can't; nothing else here needs it.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -qq 'uv>=0.9'
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --group build pyproject.toml -o requirements.lock $(UPGRADE)
	build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make lock' --extra embedded --extra fast --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock $(UPGRADE)

clean:
	rm -rf $(VENV) node_modules build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
