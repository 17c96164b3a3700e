"""The process that stops an embedded server when the last of its users has ended, in any way."""

import contextlib
import os
import sys
from pathlib import Path

from reactor.embedded.account import server_account
from reactor.embedded.server import EmbeddedServer
from reactor.errors import EmbeddedFailed


def stop_when_unused(home: Path, version: int, reader: int) -> None:
    server = EmbeddedServer(home, server_account(), version)
    # If a process starts using the server between the end of the pipe and our lock, wait again.
    while server.is_running():
        while os.read(reader, 1):
            pass
        server.stop_if_unused()


if __name__ == "__main__":
    # The process that started the server waits for this one to exit. The forked child is detached from it.
    if os.fork() == 0:
        os.setsid()
        # If the folder was removed by hand, there is nothing to stop.
        with contextlib.suppress(OSError, EmbeddedFailed):
            stop_when_unused(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
