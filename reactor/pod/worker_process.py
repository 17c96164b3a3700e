"""A worker process as its supervisor sees it: starts it, sends commands, receives its reports, ends it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from reactor.errors import WorkerNotStarted
from reactor.lifecycle.release import MAY_HAVE_RUN
from reactor.log import get_logger
from reactor.pod.silence import Silence
from reactor.worker.options import Orders
from reactor.worker.running_attempts import UNSETTLED, RunningAttempts, Started

log = get_logger(__name__)

# A pod may have thousands of job types.
_LONGEST_MESSAGE = 2**22
# SIGKILL and SIGTERM come from outside, or from a system that is out of memory and chose a victim.
_OWN_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS)
BLOCKED = "a job ran out of time and blocked it"
LEASE_LOST = "its lease could not be renewed"

_LAST_REPORTS_SECONDS = 0.2


class WorkerProcess:
    """Created by `start`. It has its own process group, so that Ctrl-C in a terminal reaches only the supervisor, and
    programs that handlers started end with it."""

    def __init__(self, worker_id: UUID, process: asyncio.subprocess.Process, running_attempts: RunningAttempts) -> None:
        self.worker_id = worker_id
        self.running_attempts = running_attempts
        self.silence = Silence(process.pid, running_attempts)
        self.job_types: dict[str, int | None] = {}
        self.ready = asyncio.Event()
        self.stuck = asyncio.Event()
        self.done: dict[str, Any] | None = None
        """Its last report, when it had done everything that it was to do."""
        self.counts: dict[str, Any] = {}
        """As reported last; empty: not yet."""
        self.failure: WorkerNotStarted | None = None
        self.ended_because: str | None = None
        """Why we ended it; None: we did not."""
        self.started_at = time.monotonic()
        self.started: dict[UUID, Started] = {}
        """Attempts that had started and were not settled when it ended: see `collect`."""
        self.causes: dict[UUID, str] = {}
        """Those of them that are known to have ended it, and how."""
        self._process = process
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    @classmethod
    async def start(cls, orders: Orders) -> "WorkerProcess":
        # In quarantine the next job starts when the end of the last one is committed: it would share its blame.
        unsettled = 0 if orders.options.inherits else UNSETTLED
        running_attempts = RunningAttempts(orders.concurrency, unsettled=unsettled)
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reactor.worker.process", str(theirs.fileno())),
                pass_fds=(theirs.fileno(), running_attempts.descriptor),
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        started = cls(UUID(orders.worker_id), process, running_attempts)
        reader, started._writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_MESSAGE)
        orders = replace(orders, attempts_descriptor=running_attempts.descriptor, supervisor_pid=os.getpid())
        started._writer.write(orders.encode())
        started._reading = asyncio.create_task(started._read(reader))
        return started

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            async for line in reader:
                self._receive(json.loads(line))

    def _receive(self, message: dict[str, Any]) -> None:
        match message.pop("event"):
            case "ready":
                self.job_types = message["job_types"]
                self.ready.set()
            case "stuck":
                self.stuck.set()
            case "counts":
                self.counts = message["counts"]
            case "done":
                self.done = message
                self.counts = message["counts"]
            case "failed":
                self.failure = WorkerNotStarted(**message)

    def send(self, command: str) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(command.encode() + b"\n")

    def kill(self, because: str) -> None:
        if self.is_running:
            self.ended_because = self.ended_because or because
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> None:
        """Waits until the process is gone and all of its reports are read."""
        await self._process.wait()
        # Programs that its handlers forked have its end of the socket open too, and would keep us reading.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.wait([self._reading], timeout=_LAST_REPORTS_SECONDS)
        self._reading.cancel()
        self._writer.close()

    def collect(self) -> None:
        """Reads which attempts had started when it ended. Once, since their memory is freed; and at once, since
        deadlines that pass later prove nothing."""
        self.started = self.running_attempts.read()
        self.running_attempts.close()
        if self.crashed and len(self.started) == 1:
            self.causes = dict.fromkeys(self.started, self.why_alone)
        else:
            blocked = "It did not end in time, and blocked its worker process, which was killed."
            self.causes = dict.fromkeys(_overdue(self.started), blocked)

    @property
    def crashed(self) -> bool:
        """Certainly by a job: it exited, or did something that a process is killed for."""
        code = self._process.returncode
        return self.was_killed_by_a_job and code is not None and (code >= 0 or -code in _OWN_SIGNALS)

    def overdue(self) -> set[UUID]:
        """Attempts that should have ended some time ago and did not: the process does not react."""
        return _overdue(self.running_attempts.read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    @property
    def is_listening(self) -> bool:
        """Or needs no listener."""
        return self.counts.get("is_listening", False) is not False

    @property
    def report(self) -> dict[str, Any]:
        """Its counts, and whether it responds; empty before its first counts."""
        return self.counts and self.counts | self.silence.facts

    @property
    def was_killed_by_a_job(self) -> bool:
        """As far as is known: not by us, and not because it was done."""
        return self.done is None and self.ended_because in (None, BLOCKED)

    @property
    def why(self) -> str:
        """Why it ended, as a sentence."""
        return f"The worker process ended: {self.ended_because or self._exit}."

    @property
    def why_unsettled(self) -> str:
        """What is known of an attempt in it that was not settled."""
        return f"{self.why} {MAY_HAVE_RUN}"

    @property
    def why_alone(self) -> str:
        """The error of a job that was the only one in it."""
        return f"The job killed its worker process, in which it ran alone. {self.why}"

    @property
    def _exit(self) -> str:
        code = self._process.returncode
        assert code is not None
        if code >= 0:
            return f"it exited with code {code}"
        with contextlib.suppress(ValueError):
            return f"it was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"it was killed by signal {-code}"


def _overdue(attempts: Mapping[UUID, Started]) -> set[UUID]:
    """An attempt whose handler has ended waits for the database, which has no deadline."""
    now = time.monotonic()
    return {
        attempt_id
        for attempt_id, started in attempts.items()
        if started.deadline and started.deadline < now and not started.has_ended
    }
