"""Notices that a worker process does not respond: it is stopped, or something blocks its event loop."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reactor.log import get_logger
from reactor.worker.running_attempts import RunningAttempts

log = get_logger(__name__)

State = Literal["stopped", "blocked"]
"""By SIGSTOP or a debugger; by a handler that does not return to the event loop, or holds the interpreter."""


@dataclass(frozen=True)
class Timings:
    silent_seconds: float = 10.0
    """A worker process shows once a second that its event loop runs."""
    pause_seconds: float = 2.0
    """Between two checks: the supervisor was frozen too, and gives the process as long as one that it checks first."""


class Silence:
    """Of one worker process. It is reported and ends nothing: the process is alive, and its jobs stay its own."""

    timings = Timings()

    def __init__(self, pid: int, running_attempts: RunningAttempts) -> None:
        self.state: State | None = None
        """None: the process responds."""
        self._pid = pid
        self._running_attempts = running_attempts
        self._since = 0.0
        self._checked_at = self._checks_since = time.monotonic()

    @property
    def facts(self) -> dict[str, Any]:
        """To be stored with the worker's counts; empty while it responds."""
        if self.state is None:
            return {}
        return {"silent_seconds": self._seconds, "silent_state": self.state, "silent_pid": self._pid}

    def check(self) -> bool:
        """Returns whether the process has fallen silent, or responds again."""
        alive_at, now = self._running_attempts.alive_at, time.monotonic()
        if now - self._checked_at > self.timings.pause_seconds:
            self._checks_since = now
        self._checked_at = now
        if self.state is not None:
            if alive_at == self._since:
                self.state = _state_of(self._pid)
                return False
            log.info("worker process responds again", pid=self._pid, seconds=self._seconds)
            self.state = None
            return True
        if not alive_at or now - max(alive_at, self._checks_since) < self.timings.silent_seconds:
            return False
        self.state, self._since = _state_of(self._pid), alive_at
        running = sum(not started.has_ended for started in self._running_attempts.read().values())
        log.warning(
            "worker process does not respond", pid=self._pid, seconds=self._seconds, state=self.state, running=running
        )
        return True

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._since, 1)


def _state_of(pid: int) -> State:
    try:
        # The state follows the name of the program, which is in parentheses and may contain any character.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended, or this system has no /proc
        return "blocked"
    return "stopped" if state in "Tt" else "blocked"
