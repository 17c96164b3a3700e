"""Rules of the repository."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reactor.database import statements
from reactor.settings import Settings

ROOT = Path(__file__).parent.parent
FIXED = {"reactor", "http", "sql", "migrations", "tests", "docs", "pyproject.toml", "Dockerfile"}


def tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("the rules about files are checked in a git checkout: clone the repository")
    return [path for path in map(ROOT.joinpath, listing.stdout.splitlines()) if path.is_file()]


def test_the_top_level_has_the_agreed_files() -> None:
    assert {path.name for path in ROOT.iterdir()} >= FIXED


def test_the_folder_http_does_not_shadow_the_standard_library() -> None:
    """With an __init__.py it would shadow the standard library's http for programs started here."""
    assert not (ROOT / "http" / "__init__.py").exists()
    assert not (ROOT / "tests" / "http").exists()
    script = "import http.client, reactor_http; print(http.__path__[0])"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).parent != ROOT


def test_every_statement_is_a_file_and_every_file_a_statement() -> None:
    constants = sorted(name.lower() for name in vars(statements) if name.isupper())
    assert constants == sorted(path.stem for path in (ROOT / "sql" / "statements").glob("*/*.sql"))


def test_every_statement_is_in_the_folder_of_a_package_that_sends_it() -> None:
    """Or in database/, if it says nothing about jobs."""
    senders: dict[str, set[str]] = {}
    for path in sources():
        for name in re.findall(r"\bstatements\.([A-Z_]+)\b", path.read_text()):
            senders.setdefault(name.lower(), set()).add(package_of(path))
    for path in (ROOT / "sql" / "statements").glob("*/*.sql"):
        sent_by = senders.get(path.stem, set())
        assert sent_by, f"nothing sends {path}"
        assert path.parent.name in sent_by | {"database"}, f"{path} is sent by {sorted(sent_by)}"


def test_every_sql_file_opens_with_its_reason_and_fits_the_line() -> None:
    for path in [*(ROOT / "sql").rglob("*.sql"), *(ROOT / "migrations").rglob("*.sql")]:
        text = path.read_text()
        assert text.startswith("-- "), path
        assert [line for line in text.splitlines() if len(line) > 120] == [], path


def test_a_statement_that_only_calls_a_function_names_its_file() -> None:
    for path in (ROOT / "sql" / "statements").glob("*/*.sql"):
        text = path.read_text()
        body = "".join(line for line in text.splitlines() if not line.startswith("--"))
        called = re.search(r"\bfrom reactor\.([a-z_]+)\(", body)
        if called and "reactor.jobs" not in body and len(body) < 200:
            named = re.search(r"schema/functions/[a-z_]+\.sql", text)
            assert named, f"{path} calls reactor.{called[1]}"
            assert f"function reactor.{called[1]}(" in (ROOT / "sql" / named[0]).read_text(), path


# Texts that a user may paste into psql: the engine does not send them.
EXAMPLES = {"insert into reactor.jobs (job_type) values ('demo.hello') returning id", "\ngrant reactor_owner to "}
QUERY = re.compile(
    r"\s*(select|insert\s+into|update\s+\S+\s+(\w+\s+)?set|delete\s+from|merge\s+into|with\s+\w+|values\s*\(|call\s+\w+"
    r"|truncate|alter|grant|revoke|do\s+\$|(create|drop)\s+(?!database))\b"
)


def test_no_sql_outside_sql() -> None:
    """Python may set up a session or a database (set, listen, create database). The rule is in sql/README.md."""
    found = []
    for path in sources():
        tree = ast.parse(path.read_text())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                text = node.value
                if QUERY.match(text) and text not in EXAMPLES:
                    found.append(f"{path}:{node.lineno}: {text[:60]}")
    assert found == []


def sources() -> list[Path]:
    return [*(ROOT / "reactor").rglob("*.py"), *(ROOT / "http").rglob("*.py")]


def package_of(path: Path) -> str:
    """`worker` for reactor/worker/x.py, `doctor` for reactor/doctor.py."""
    root, *inner = path.relative_to(ROOT).parts
    if root == "http":
        return "http"
    return Path(inner[0]).stem


def test_no_file_refers_to_the_build_machine() -> None:
    """No package index, no folder of the development machine, nothing outside the repository."""
    forbidden = re.compile(r"index-url|\.\./" + r"shared|/work/" + r"main|extra-index|/opt/" + r"(pypi|wheels)")
    for path in tracked():
        if path.suffix not in (".png", ".ico") and path.name not in ("Makefile", Path(__file__).name):
            assert forbidden.findall(path.read_text()) == [], path


def test_no_cycle_hides_behind_type_checking() -> None:
    """Modules of our own are imported where they are used, or not at all."""
    for path in [*(ROOT / "reactor").rglob("*.py"), *(ROOT / "http").rglob("*.py")]:
        for block in ast.walk(ast.parse(path.read_text())):
            if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
                assert "reactor" not in "".join(map(ast.unparse, block.body)), path


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.lock"), *ROOT.glob("tests/clients/*/*.lock")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_lock_files_have_hashes_and_no_urls(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    packages = re.findall(r"^\S+==\S+(?: ;.*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[a-zA-Z0-9]", text, re.MULTILINE))


@pytest.mark.parametrize(
    "path",
    [ROOT / "package-lock.json", *ROOT.glob("tests/clients/*/package-lock.json")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_lock_files_of_npm_have_a_hash_for_every_package_and_no_registry(path: Path) -> None:
    packages = json.loads(path.read_text())["packages"]
    installed = [package for path, package in packages.items() if path]
    assert installed
    assert all("integrity" in package and "resolved" not in package for package in installed)


def test_the_image_copies_existing_files_and_runs_the_command() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [source for line in lines if line.startswith("COPY ") for source in line.split()[1:-1]]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, f".dockerignore keeps {source} from the image"
    assert 'ENTRYPOINT ["reactor"]' in lines
    assert 'reactor = "reactor.cli:main"' in (ROOT / "pyproject.toml").read_text()


def test_the_readmes_commands_are_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"`make ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert {"run", "test"} <= used <= targets


def test_every_setting_is_documented() -> None:
    documented = set(re.findall(r"`(REACTOR_[A-Z_]+)`", (ROOT / "docs" / "settings.md").read_text()))
    assert {f"REACTOR_{name.upper()}" for name in Settings.model_fields} <= documented


def test_links_between_documents_are_valid() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sql").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_files_that_the_docs_name_exist() -> None:
    named = re.compile(r"`((?:reactor|http|sql|migrations|tests|bench|docs)/[\w./-]+)`")
    patterns = {"migrations/versions/NNNN/", "reactor/a/b.py", "tests/a/test_b.py"}
    absent = patterns | {"tests/http/"}  # a decision rules out this name
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sql").rglob("*.md")]
    for page in pages:
        for path in named.findall(page.read_text()):
            assert path in absent or (ROOT / path).exists(), f"{page.relative_to(ROOT)}: {path}"


def test_the_proofs_of_the_guarantees_exist() -> None:
    """docs/guarantees.md names functions after their file: tests, and faults of `make chaos`."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    sections = re.split(r"^## (?=\d)", page, flags=re.MULTILINE)[1:]
    assert [section[0] for section in sections] == list("123456789")
    for section in sections:
        proofs = re.findall(r"^- `(tests/[\w/]+\.py)`:((?:\s+`\w+`,?)+)", section, re.MULTILINE)
        assert proofs, section
        for file, names in proofs:
            defined = {
                node.name
                for node in ast.walk(ast.parse((ROOT / file).read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert set(re.findall(r"`(\w+)`", names)) <= defined, file


# Private names that tests may use, with the reason.
PRIVATE = {
    "Job._meta": "documented by Django",
    "os._exit": "documented in the standard library: ends a process without cleaning up",
    "first._replace": "documented for named tuples",
    "endings[3]._replace": "documented for named tuples",
}
# Names of our modules that tests may replace by a dotted string, with the reason.
REPLACED = {
    "reactor.cli.jobs.list_jobs": "a page scans 50,000 jobs, and the command has no option for that",
    "reactor.cli.configure_logging": "commands run in the tests' process, whose logging they must not change",
}


def python_of_tests() -> dict[Path, ast.Module]:
    """Without tests/typing/project, which stands for a project of a user."""
    paths = [path for path in (ROOT / "tests").rglob("*.py") if "project" not in path.parts]
    return {path: ast.parse(path.read_text()) for path in paths}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_tests_use_no_private_names() -> None:
    """They go through public names, so that a change behind these breaks no test: see CONTRIBUTING.md."""
    found: dict[str, str] = {}
    for path, module in python_of_tests().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    found[ast.unparse(node)] = f"{path}:{node.lineno}"
            elif isinstance(node, ast.ImportFrom):
                found |= {alias.name: f"{path}:{node.lineno}" for alias in node.names if is_private(alias.name)}
    assert {name: place for name, place in found.items() if name not in PRIVATE} == {}
    assert PRIVATE.keys() <= found.keys(), "an exception that is not needed any more"


def test_tests_replace_no_private_names() -> None:
    """Timings, constructor parameters and public attributes can be replaced. A dotted string hides from type checkers
    and from searches what is replaced."""
    found: dict[str, str] = {}
    for path, module in python_of_tests().items():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and is_replacement(node.func):
                names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                found |= {
                    name: f"{path}:{node.lineno}"
                    for name in names[:1]
                    if is_private(name.rpartition(".")[2]) or re.match(r"reactor(_http)?\.", name)
                }
    assert {name: place for name, place in found.items() if name not in REPLACED} == {}
    assert REPLACED.keys() <= found.keys(), "an exception that is not needed any more"


def is_replacement(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    return name in ("setattr", "delattr", "getattr", "patch", "object", "setitem")


def test_no_two_tests_have_the_same_name() -> None:
    """A name in a report or a document leads to one test."""
    places: dict[str, list[str]] = {}
    for path, module in python_of_tests().items():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_are_named_after_the_module_they_test() -> None:
    """`reactor/a/b.py` is tested in `tests/a/test_b.py`."""
    elsewhere = {
        "api",
        "chaos",
        "clients",
        "examples",
        "guarantees",
        "page",
        "schema",
        "stress",
        "typing",
    }  # what they test is said in CONTRIBUTING.md
    for path in (ROOT / "tests").glob("*/test_*.py"):
        package, name = path.parent.name, path.stem.removeprefix("test_")
        if package not in elsewhere and (package, name) != ("cli", "commands"):
            assert (ROOT / "reactor" / package / f"{name}.py").exists(), path
