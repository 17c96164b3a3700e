"""Signals of `worker`, `up` and `serve`, as PID 1 too. They share their handling, so one of them tries each signal."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reactor.database.connection import Connection
from tests.support.jobs import insert
from tests.support.logs import entries
from tests.support.pods import Marks
from tests.support.until import until

pytestmark = pytest.mark.pods

COMMANDS: dict[str, tuple[str, ...]] = {
    "worker": ("worker", "--app", "pod_handlers"),
    "up": ("up", "--app", "pod_handlers", "--port", "0"),
    "serve": ("serve", "--port", "0"),
}
IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
AS_FIRST_PROCESS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Command:
    """A command as an operator starts it."""

    def __init__(self, name: str, url: str, folder: Path, prefix: Sequence[str]) -> None:
        self._log_file = folder / f"{name}.log"
        outside = {key: value for key, value in os.environ.items() if not key.startswith("REACTOR_")}
        with self._log_file.open("w") as log:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "reactor", *COMMANDS[name]],
                cwd=Path(__file__).parents[1] / "support",
                env=outside | {"REACTOR_DATABASE_URL": url, "POD_MARKS": str(folder / "marks")},
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._is_first_process = bool(prefix)

    @property
    def pid(self) -> int:
        """Of the command itself."""
        if not self._is_first_process:
            return self.process.pid
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=True)
        return int(children.stdout)

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in entries(self._log_file) if entry["event"] == event]

    def is_running(self) -> bool:
        assert self.process.poll() is None, self.log
        return bool(self.events("serving") or self.events("worker started"))

    async def stop(self, *signals: int) -> int:
        for number in signals:
            os.kill(self.pid, number)
        return await self.exit_code()

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self.process.wait, 40)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


Start = Callable[..., Awaitable[Command]]


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a command, and waits until it runs: start("serve")."""
    commands: list[Command] = []
    # A process that is started by nohup ignores SIGHUP, and so may be these tests.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    async def start(name: str, *, url: str = database, ready: bool = True, prefix: Sequence[str] = ()) -> Command:
        command = Command(name, url, tmp_path, prefix)
        commands.append(command)
        if ready:
            await until(command.is_running, 60)
        return command

    yield start
    for command in commands:
        command.end()
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("name", "number"),
    [("up", signal.SIGTERM), ("up", signal.SIGHUP), ("serve", signal.SIGINT), ("serve", signal.SIGQUIT)],
)
async def test_signals_stop_a_command_cleanly(start: Start, connection: Connection, name: str, number: int) -> None:
    """Those that mean nothing to it come first, and are ignored. A pod: tests/guarantees/test_shutdown.py."""
    command = await start(name)
    assert await command.stop(*IGNORED, number) == 0, command.log
    assert "Traceback" not in command.log
    if name == "up":
        assert command.log.endswith("Stopped.\n")
        assert await connection.fetchval("select count(*) from reactor.workers where ended_at is null") == 0


@pytest.mark.parametrize(
    ("name", "number"),
    [("worker", signal.SIGTERM), ("worker", signal.SIGQUIT), ("up", signal.SIGINT), ("serve", signal.SIGHUP)],
)
async def test_signals_stop_a_command_that_is_starting(start: Start, name: str, number: int) -> None:
    async with starting(start, name) as command:
        assert await command.stop(*IGNORED, number) == 0, command.log
    assert "Traceback" not in command.log


@asynccontextmanager
async def starting(start: Start, name: str, prefix: Sequence[str] = ()) -> AsyncIterator[Command]:
    """The command waits for a server that accepts connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        url = f"postgresql://user@127.0.0.1:{port}/none?sslmode=disable&connect_timeout=600"
        command = await start(name, url=url, ready=False, prefix=prefix)
        accepted, _ = await asyncio.to_thread(server.accept)
        with accepted:
            yield command


@pytest.fixture
def as_first_process() -> tuple[str, ...]:
    """As in a container: a command with this prefix is PID 1 of its namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is missing: apt-get install util-linux (Linux only)")
    tried = subprocess.run([*AS_FIRST_PROCESS, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no PID namespace can be created, which needs root (CAP_SYS_ADMIN): {tried.stderr.strip()}")
    return AS_FIRST_PROCESS


@pytest.mark.parametrize("name", COMMANDS)
async def test_the_first_process_of_a_container_stops_at_sigterm(
    start: Start, as_first_process: tuple[str, ...], name: str
) -> None:
    """The kernel drops signals that it does not handle."""
    command = await start(name, prefix=as_first_process)
    assert await command.stop(*IGNORED, signal.SIGTERM) == 0, command.log


@pytest.mark.parametrize("name", COMMANDS)
async def test_the_first_process_of_a_container_stops_at_sigterm_while_it_starts(
    start: Start, as_first_process: tuple[str, ...], name: str
) -> None:
    async with starting(start, name, as_first_process) as command:
        assert await command.stop(*IGNORED, signal.SIGTERM) == 0, command.log


@pytest.mark.parametrize("name", ["worker", "up"])
async def test_the_first_process_of_a_container_reaps_orphans_of_handlers(
    start: Start, as_first_process: tuple[str, ...], connection: Connection, marks: Marks, name: str
) -> None:
    command = await start(name, prefix=as_first_process)
    for _ in range(3):
        await insert(connection, "orphan")
    await until(lambda: len(marks("orphan")) == 3)
    # The marks have the pids of the namespace.
    processes = Path(f"/proc/{command.pid}/root/proc")
    assert (processes / "1").exists()
    await until(lambda: not any((processes / str(pid)).exists() for _, _, pid, _ in marks("orphan")))
    assert await command.stop(signal.SIGTERM) == 0, command.log
    assert not command.events("worker died")
