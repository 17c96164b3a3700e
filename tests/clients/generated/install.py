"""Installs the generators of clients: `python -m tests.clients.generated.install`."""

from pathlib import Path

from tests.support.client_tools import BUILD, install


def install_generators(folder: Path) -> None:
    """Into a folder of their own in this one."""
    install(Path(__file__).parent, folder / "generated")


if __name__ == "__main__":
    install_generators(BUILD)
