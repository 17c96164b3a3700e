"""The installed package works outside the checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("REACTOR_", "PYTHON"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as pip does."""
    folder = tmp_path_factory.mktemp("package")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    [sdist] = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*pip, "-w", str(folder), str(sdist), cwd=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_contains_sql_migrations_and_page(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder, target in [
        ("sql", "reactor/sql"),
        ("migrations", "reactor/migrations"),
        ("http/reactor_http", "reactor_http"),
    ]:
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files
        assert {f"{target}/{path.relative_to(ROOT / folder).as_posix()}" for path in files} <= inside
    assert not any(name.startswith(("http/", "tests/")) for name in inside)


def test_an_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies of this environment without its editable reactor, since .pth files in there are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert Path(run(python, "-c", "import reactor; print(reactor.__file__)", cwd=tmp_path).strip()).is_relative_to(home)
    assert "create schema reactor" in run(python, "-m", "reactor", "migrate", "--sql", cwd=tmp_path)
    assert run(python, "-c", "from reactor_http.app import create_app; create_app('')", cwd=tmp_path) == ""
