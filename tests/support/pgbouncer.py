"""pgbouncer in transaction mode, on a TCP port."""

import asyncio
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from reactor.embedded.account import server_account
from tests.support.postgres import free_port
from tests.support.until import until


class Pooler:
    def __init__(self, folder: Path, server_port: int) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/opt/homebrew/bin")
        if not program:
            pytest.skip("there is no pgbouncer: apt-get install pgbouncer (or brew)")
        self.port = free_port()
        self._program = program
        self._config = folder / "pgbouncer.ini"
        self._config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server_port} user=postgres\n[pgbouncer]\n"
            f"listen_addr=127.0.0.1\nlisten_port={self.port}\nunix_socket_dir=\nauth_type=any\npool_mode=transaction\n"
            "server_login_retry=1\n"
        )
        self._account = server_account()  # it refuses root, as the server does
        self._account.take_ownership(self._config)
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = subprocess.Popen(
            [self._program, self._config], stderr=subprocess.DEVNULL, **self._account.subprocess_options()
        )
        await until(self._answers)

    async def restart(self) -> None:
        """After a SIGKILL."""
        await asyncio.to_thread(self.end)
        await self.start()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
