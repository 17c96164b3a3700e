"""A worker process as its supervisor sees it: started, told what to do, listened to, ended."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import Any
from uuid import UUID

from reactor.errors import WorkerNotStarted
from reactor.log import get_logger
from reactor.worker.process import Orders
from reactor.worker.running_attempts import Begun

log = get_logger(__name__)

# A pod may have thousands of job types.
_LONGEST_MESSAGE = 2**22
# SIGKILL and SIGTERM come from outside, or from a system that has no memory left and chose somebody.
_OWN_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS)
BLOCKED = "a job ran out of time and blocked it"

_LAST_WORDS_SECONDS = 0.2


class Child:
    """Made by `start`. Its process group is its own, so that a Ctrl-C in the terminal reaches the supervisor alone, and
    what handlers started ends with them."""

    def __init__(self, worker_id: UUID, process: asyncio.subprocess.Process, begun: Begun) -> None:
        self.worker_id = worker_id
        self.begun = begun
        self.job_types: dict[str, int | None] = {}
        self.ready = asyncio.Event()
        self.worn = asyncio.Event()
        self.done: dict[str, Any] | None = None
        """What it said when it had done all it was to do."""
        self.counts: dict[str, Any] = {}
        """What it has done, as it told us last; empty: it has not told yet."""
        self.failure: WorkerNotStarted | None = None
        self.ended_because: str | None = None
        """Why we ended it; None: it ended by itself."""
        self.started_at = time.monotonic()
        self._process = process
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    @classmethod
    async def start(cls, orders: Orders) -> "Child":
        """`orders` without what belongs to this one process, which is filled in here."""
        begun = Begun(orders.concurrency)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reactor.worker.process", str(theirs.fileno())),
                pass_fds=(theirs.fileno(), begun.descriptor),
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        child = cls(UUID(orders.worker_id), process, begun)
        reader, child._writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_MESSAGE)
        child._writer.write(replace(orders, attempts_descriptor=begun.descriptor, supervisor_pid=os.getpid()).encode())
        child._reading = asyncio.create_task(child._read(reader))
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def killed_itself(self) -> bool:
        """Its end is its handlers' doing."""
        return self.done is None and self.ended_because in (None, BLOCKED)

    @property
    def broke_itself(self) -> bool:
        """Nobody else can have done it: it exited, or did something that a process is ended for."""
        code = self._process.returncode
        return self.killed_itself and code is not None and (code >= 0 or -code in _OWN_SIGNALS)

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def is_listening(self) -> bool:
        """Or needs no listener."""
        return self.counts.get("is_listening", False) is not False

    def tell(self, command: str) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(command.encode() + b"\n")

    def kill(self, because: str) -> None:
        if self.is_running:
            self.ended_because = self.ended_because or because
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Until the process is gone, and all it said has been heard."""
        await self._process.wait()
        # What its handlers forked has its end of the socket open too, and would keep us listening.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait([self._reading], timeout=_LAST_WORDS_SECONDS)
        self._reading.cancel()
        self._writer.close()

    @property
    def why(self) -> str:
        """Why it ended, in words."""
        return f"The worker process ended: {self.ended_because or self._cause}."

    @property
    def _cause(self) -> str:
        code = self._process.returncode
        assert code is not None
        if code >= 0:
            return f"it exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"it was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"it was killed by signal {-code}"

    def overdue(self) -> set[UUID]:
        """Attempts that had to end some time ago and did not: the process does not react."""
        now = time.monotonic()
        return {attempt_id for attempt_id, deadline in self.begun.read().items() if deadline and deadline < now}

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            async for line in reader:
                self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        match message.pop("event"):
            case "ready":
                self.job_types = message["job_types"]
                self.ready.set()
            case "stuck":
                self.worn.set()
            case "counts":
                self.counts = message["counts"]
            case "done":
                self.done = message
                self.counts = message["counts"]
            case "failed":
                self.failure = WorkerNotStarted(**message)
