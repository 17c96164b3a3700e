"""Keeps the process running that kills workers whose leases this process fails to renew, as when it is frozen."""

import asyncio
import sys
from contextlib import suppress

from reactor.log import get_logger
from reactor.pod import enforce_leases

log = get_logger(__name__)

_RESTART_SECONDS = 1.0


class LeaseGuard:
    """After five sixths of the lease: later than the heartbeat gives up, and before other pods take the jobs."""

    def __init__(self, lease_seconds: float) -> None:
        self._seconds = lease_seconds * 5 / 6
        self._deadlines: dict[int, float] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._is_starting = False

    def owns(self, pid: int) -> bool:
        """Whether this waits for the end of that process, or may soon."""
        return self._is_starting or (self._process is not None and self._process.pid == pid)

    def renew(self, pid: int, renewed_at: float) -> None:
        """`renewed_at`: the monotonic time from which the lease of this worker process runs."""
        self._deadlines[pid] = renewed_at + self._seconds
        self._send(f"{pid} {self._deadlines[pid]}")

    def forget(self, pid: int) -> None:
        """The process has ended."""
        if self._deadlines.pop(pid, None) is not None:
            self._send(str(pid))

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self._is_starting = True
                # A process group of its own, so that Ctrl-C in a terminal reaches only the supervisor.
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", enforce_leases.__file__),
                    stdin=asyncio.subprocess.PIPE,
                    process_group=0,
                )
                self._is_starting = False
                for pid, deadline in self._deadlines.items():
                    self._send(f"{pid} {deadline}")
                code = await self._process.wait()
                log.error("the process that enforces leases ended; starting another one", exit_code=code)
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(f"{line}\n".encode())
