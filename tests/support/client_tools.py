"""Installs programs and libraries that tests use as a client's author would, outside of .venv."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LOCKS = ("requirements.txt", "package.json", "package-lock.json")
BUILD = _ROOT / "build" / "clients"


@dataclass(frozen=True)
class Tools:
    """What is installed in a folder: a virtual environment, and packages of Node."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which these programs come first, without settings of reactor."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
        places = [self.python.parent, self.folder / "node_modules" / ".bin", outside["PATH"]]
        return outside | {"PATH": os.pathsep.join(map(str, places))}


def install(declared: Path, folder: Path) -> None:
    """Installs what the lock files in `declared` list, unless it is there already."""
    if _is_installed(declared, folder):
        return
    mark = folder / "installed"
    folder.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    for name in _LOCKS:
        shutil.copy(declared / name, folder)
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
    pip = [str(Tools(folder).python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(folder / "requirements.txt")], check=True)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    mark.write_text(_content(declared))


def installed(name: str) -> Tools:
    """The tools in build/clients/, or a skipped test."""
    if not _is_installed(_ROOT / "tests" / "clients" / name, BUILD / name):
        pytest.skip(f"build/clients/{name} is missing or outdated: run `make clients`")
    return Tools(BUILD / name)


def _is_installed(declared: Path, folder: Path) -> bool:
    mark = folder / "installed"
    return mark.exists() and mark.read_text() == _content(declared)


def _content(declared: Path) -> str:
    return "".join((declared / name).read_text() for name in _LOCKS)
