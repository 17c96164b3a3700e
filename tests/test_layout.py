"""The repository keeps its own rules."""

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


def test_the_top_level_is_as_agreed() -> None:
    assert {path.name for path in ROOT.iterdir()} >= FIXED


def test_http_is_a_source_root_and_hides_nothing() -> None:
    """With an __init__.py it would stand before the standard library's http for everything started here."""
    assert not (ROOT / "http" / "__init__.py").exists()
    assert not (ROOT / "tests" / "http").exists()
    script = "import http.client, reactor_http; print(http.__path__[0])"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).parent != ROOT


def test_every_statement_is_a_file_and_every_file_a_statement() -> None:
    constants = {name.lower() for name in vars(statements) if name.isupper()}
    assert constants == {path.stem for path in (ROOT / "sql").glob("*.sql")}


def test_every_statement_opens_with_its_reason() -> None:
    for path in (ROOT / "sql").glob("*.sql"):
        assert path.read_text().startswith("-- "), path


def test_nothing_refers_to_this_workplace() -> None:
    """No package index, no folder of the machine it was written on, nothing outside the repository."""
    forbidden = re.compile(r"index-url|\.\./" + r"shared|/work/" + r"main|extra-index|/opt/" + r"(pypi|wheels)")
    for path in tracked():
        if path.suffix not in (".png", ".ico") and path.name not in ("Makefile", Path(__file__).name):
            assert forbidden.findall(path.read_text()) == [], path


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_lock_files_have_a_hash_for_everything_and_no_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    packages = re.findall(r"^\S+==\S+(?: ;.*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[a-zA-Z0-9]", text, re.MULTILINE))


def test_the_pages_lock_file_has_a_hash_for_every_package_and_no_registry() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    installed = [package for path, package in packages.items() if path]
    assert installed
    assert all("integrity" in package and "resolved" not in package for package in installed)


def test_the_image_copies_what_exists_and_runs_what_is_installed() -> None:
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


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
