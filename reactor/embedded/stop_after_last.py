"""The process that stops an embedded server whose users are gone, however they went."""

import contextlib
import os
import sys
from pathlib import Path

from reactor.embedded.account import server_account
from reactor.embedded.server import EmbeddedServer
from reactor.errors import EmbeddedFailed


def keep(home: Path, version: int, reader: int) -> None:
    server = EmbeddedServer(home, server_account(), version)
    # Somebody may have joined between the pipe's end and our lock: then the wait begins again.
    while server.is_running():
        while os.read(reader, 1):
            pass
        server.stop_if_unused()


if __name__ == "__main__":
    # Whoever started the server waits for this process, and the one that stays is nobody's child.
    if os.fork() == 0:
        os.setsid()
        # With the folder removed by hand there is nothing left to stop, and nobody to tell.
        with contextlib.suppress(OSError, EmbeddedFailed):
            keep(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
