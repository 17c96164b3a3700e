"""A process beside the supervisor that kills worker processes whose leases the supervisor no longer renews.

A supervisor that can't reach the database ends its workers itself, unless it is frozen. Nothing in a worker process can
do that instead: a handler may hold the interpreter for as long as it likes, and must live meanwhile.

Started by its path, so that it imports nothing else of reactor and takes 10 MB. Each line of its standard input is the
pid of a worker process and the time at which to kill it, by the machine's monotonic clock; or only the pid of a process
that has ended. It ends with its input.
"""

import json
import os
import select
import signal
import sys
import time
from datetime import UTC, datetime

_INPUT = 0
_NO_HANDLE = -1


class Enforcer:
    def __init__(self) -> None:
        self._deadlines: dict[int, float] = {}
        self._handles: dict[int, int] = {}
        """By pid: what tells the process from a later one with its pid."""

    def run(self) -> None:
        """Until the end of the input."""
        rest = b""
        while True:
            readable, _, _ = select.select([_INPUT], [], [], self._seconds_left())
            if readable:
                received = os.read(_INPUT, 65_536)
                if not received:
                    return
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._obey(*line.split())
            else:
                self._kill_the_overdue()

    def _seconds_left(self) -> float | None:
        return max(0.0, min(self._deadlines.values()) - time.monotonic()) if self._deadlines else None

    def _obey(self, pid_text: bytes, deadline: bytes | None = None) -> None:
        pid = int(pid_text)
        if deadline is None:
            self._forget(pid)
        elif pid in self._deadlines or self._open(pid):
            self._deadlines[pid] = float(deadline)

    def _open(self, pid: int) -> bool:
        """False: it has ended."""
        try:
            self._handles[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else _NO_HANDLE
        except ProcessLookupError:
            return False
        return True

    def _forget(self, pid: int) -> None:
        self._deadlines.pop(pid, None)
        handle = self._handles.pop(pid, _NO_HANDLE)
        if handle != _NO_HANDLE:
            os.close(handle)

    def _kill_the_overdue(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, deadline in self._deadlines.items() if deadline <= now]:
            try:
                if self._handles[pid] != _NO_HANDLE:
                    signal.pidfd_send_signal(self._handles[pid], signal.SIGKILL)
                os.killpg(pid, signal.SIGKILL)  # and the programs that its handlers have started
            except (ProcessLookupError, PermissionError):
                pass
            else:
                _log("worker process killed: its supervisor does not renew its lease", pid)
            self._forget(pid)


def _log(event: str, pid: int) -> None:
    """In the form of the other processes' log."""
    at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    if sys.stderr.isatty():
        line = f"{at} [error    ] {event} pid={pid}"
    else:
        line = json.dumps({"pid": pid, "event": event, "level": "error", "logger": "reactor", "timestamp": at})
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    # A service manager may signal every process of a pod; the supervisor decides when this one ends.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    Enforcer().run()


if __name__ == "__main__":
    main()
