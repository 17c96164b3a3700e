"""Installs the libraries that follow streams: `python -m tests.clients.streams.install`."""

from pathlib import Path

from tests.support.client_tools import BUILD, install


def install_stream_clients(folder: Path) -> None:
    """Into a folder of their own in this one."""
    install(Path(__file__).parent, folder / "streams")


if __name__ == "__main__":
    install_stream_clients(BUILD)
