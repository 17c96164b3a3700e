"""The wheel, built and installed as pip does it."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("REACTOR_", "PYTHON"))}


def build_wheel(folder: Path) -> Path:
    """From the source distribution, so that a file that is missing there is missing here too."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    [sdist] = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    run(*pip, "-w", str(folder), str(sdist), cwd=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, home: Path, *, without: tuple[str, ...] = ()) -> Path:
    """An environment with the wheel and its dependencies; returns its Python.

    `without`: beginnings of names that are left out.
    """
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    zipfile.ZipFile(wheel).extractall(_site(python))
    add_packages(python, without=without)
    return python


def add_packages(python: Path, *, only: tuple[str, ...] = ("",), without: tuple[str, ...] = ()) -> None:
    """Packages of the tests' environment, except reactor itself: its editable installation is a .pth file, and more."""
    here = {Path(sysconfig.get_path(scheme)) for scheme in ("purelib", "platlib")}
    for package in (package for folder in here for package in folder.iterdir()):
        omitted = package.suffix == ".pth" or package.name.startswith(
            ("pg_reactor", "reactor", "__pycache__", *without)
        )
        if package.name.startswith(only) and not omitted:
            (_site(python) / package.name).symlink_to(package)


def _site(python: Path) -> Path:
    [site] = python.parent.parent.glob("lib/python*/site-packages")
    return site
