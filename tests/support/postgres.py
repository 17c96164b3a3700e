"""A PostgreSQL server of a test's own, on a TCP port, which the test may crash, restart, copy and promote."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from reactor.embedded.account import Account, server_account
from reactor.embedded.binaries import programs_for
from reactor.settings import Settings

_START_SECONDS = 60
# The machine survives what the tests do to the server, so nothing has to reach a disk.
_OPTIONS = {"fsync": "off", "max_connections": "100", "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}


class Postgres:
    """One data directory and the server on it. The folder must be one that the server's account can enter."""

    def __init__(self, folder: Path, *, programs: Path | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._account = server_account()
        version = Settings.model_fields["embedded_version"].default
        self._programs = programs or programs_for(self._account, version, folder.parent)

    def url(self, database: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    async def create(self) -> None:
        """A new cluster, which is not started."""
        _own(self.folder, self._account)
        form = ["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8"]
        await self.run("initdb", "-D", str(self.data), *form, "--no-sync")

    async def copy_to(self, folder: Path) -> "Postgres":
        """A copy of this stopped cluster, with a port of its own."""
        other = Postgres(folder, programs=self._programs)
        _own(folder, self._account)
        await asyncio.to_thread(shutil.copytree, self.data, other.data, symlinks=True)
        for path in (other.data, *other.data.rglob("*")):
            self._account.take_ownership(path)
        other.data.chmod(0o700)
        return other

    def configure(self, **options: str) -> None:
        """For the next start."""
        settings = _OPTIONS | {"port": str(self.port)} | options
        conf = self.data / "postgresql.auto.conf"
        kept = [line for line in conf.read_text().splitlines() if line.partition(" ")[0] not in settings]
        conf.write_text("\n".join([*kept, *(f"{name} = '{value}'" for name, value in settings.items())]) + "\n")

    async def start(self) -> None:
        """Again, where what is left of a killed server has not ended yet."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                await self.run("pg_ctl", "start", "-D", str(self.data), "-l", str(self.folder / "log"), "-w")
                return
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)

    async def stop(self, mode: str = "fast") -> None:
        """`immediate`: as after a crash, without a checkpoint."""
        with suppress(RuntimeError):
            await self.run("pg_ctl", "stop", "-D", str(self.data), "-m", mode, "-w", "-t", "30")

    async def kill(self) -> None:
        """SIGKILL for the first process. The others notice that it is gone, and end."""
        os.kill(self._pid(), signal.SIGKILL)
        while self._answers():
            await asyncio.sleep(0.02)

    async def standby(self, folder: Path, source_port: int, **options: str) -> "Postgres":
        """A running copy that follows this server through `source_port`."""
        other = Postgres(folder, programs=self._programs)
        _own(folder, self._account)
        source = f"host=127.0.0.1 port={source_port} user=postgres application_name=standby"
        await self.run("pg_basebackup", "-D", str(other.data), "-d", source, "-R", "-X", "stream", "-c", "fast")
        other.configure(hot_standby="on", **options)
        await other.start()
        return other

    async def promote(self) -> None:
        await self.run("pg_ctl", "promote", "-D", str(self.data), "-w", "-t", str(_START_SECONDS))

    async def run(self, program: str, *arguments: str) -> None:
        """One of PostgreSQL's programs, as the account of the server."""
        await asyncio.to_thread(self._run, program, *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # A file rather than a pipe: the server would keep a pipe open.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            done = subprocess.run(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | {"LC_ALL": "C"},
                cwd="/",
                **self._account.subprocess_options(),
            )
            output.seek(0)
            if done.returncode != 0:
                raise RuntimeError(f"{program}: {output.read().strip()}")

    def _pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _own(folder: Path, account: Account) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    account.take_ownership(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
