"""Programs and libraries in build/clients/ that tests use as a client's author would."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.install import BUILD, is_installed


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


def installed(name: str) -> Tools:
    """The tools in build/clients/, or a skipped test."""
    if not is_installed(name):
        pytest.skip(f"build/clients/{name} is missing or outdated: run `make clients`")
    return Tools(BUILD / name)
