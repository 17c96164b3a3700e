"""A user's project, checked against the installed wheel: what is right passes, and each mistake is reported.

In the project's files the comment `# mistake` marks each line that a type checker must report.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import playwright
import pytest

from tests.support.package import add_packages, clean_environment, install

pytestmark = pytest.mark.skipif(not os.environ.get("REACTOR_TEST_TYPES"), reason="part of `make check`")

PROJECT = Path(__file__).parent / "project"
FILES = sorted(PROJECT.glob("*.py"))
# Playwright's wheel carries a Node.js.
NODE_PATH = os.pathsep.join([str(Path(playwright.__file__).parent / "driver"), os.environ.get("PATH", os.defpath)])

Errors = dict[tuple[str, int], str]
"""What is reported, by file and line."""


def test_mypy_passes_what_is_right_and_reports_each_mistake(wheel: Path, tmp_path: Path) -> None:
    command = ["mypy", "--cache-dir", str(tmp_path / "cache"), "--output", "json", "."]
    check_with_and_without_psycopg(command, wheel, tmp_path)


def test_pyright_passes_what_is_right_and_reports_each_mistake(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("node", path=NODE_PATH) is None:
        missing = "there is no Node.js for pyright: apt-get install nodejs (or put it on the PATH)"
        if os.environ.get("REACTOR_TEST_PYRIGHT") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    check_with_and_without_psycopg(["pyright", "--outputjson", "--project", "."], wheel, tmp_path)


def check_with_and_without_psycopg(command: Sequence[str], wheel: Path, tmp_path: Path) -> None:
    """psycopg is not a dependency of reactor: a type checker may not know it."""
    # A copy: inside the repository mypy takes its root for the project's, and reactor from there instead of the wheel.
    project = shutil.copytree(PROJECT, tmp_path / "project")
    python = install(wheel, tmp_path / "venv", without=("psycopg",))
    compare(check(command, python, project), [path for path in FILES if not path.stem.endswith("psycopg")])
    add_packages(python, only=("psycopg",))
    compare(check(command, python, project), FILES)


def check(command: Sequence[str], python: Path, project: Path) -> Errors:
    checker, *arguments = command
    option = {"mypy": "--python-executable", "pyright": "--pythonpath"}[checker]
    done = subprocess.run(
        [sys.executable, "-m", checker, option, python, *arguments],
        cwd=project,
        env=clean_environment() | {"PATH": NODE_PATH},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), f"{command}: {done.stdout}{done.stderr}"
    found = _by_mypy(done.stdout) if checker == "mypy" else _by_pyright(done.stdout)
    # A file outside the project means that the checker did not take reactor for an installed package.
    return {((project / file).relative_to(project).as_posix(), line): message for file, line, message in found}


def _by_mypy(output: str) -> list[tuple[str, int, str]]:
    errors = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [(e["file"], e["line"], e["message"]) for e in errors if e["severity"] == "error"]


def _by_pyright(output: str) -> list[tuple[str, int, str]]:
    errors = [e for e in json.loads(output)["generalDiagnostics"] if e["severity"] == "error"]
    return [(e["file"], e["range"]["start"]["line"] + 1, e["message"]) for e in errors]


def compare(errors: Errors, files: Sequence[Path]) -> None:
    mistakes = {
        (path.name, number): line.strip()
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.endswith("# mistake")
    }
    assert mistakes
    names = {path.name for path in files}
    assert {place: line for place, line in mistakes.items() if place not in errors} == {}, "these are not reported"
    assert {place: error for place, error in errors.items() if place[0] in names and place not in mistakes} == {}, (
        "these are right"
    )
