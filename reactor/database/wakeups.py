"""Decides when to read the database next: after a notification, shortly after again, at a due time, or at a poll."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto

NEVER = float("inf")
_LONGEST_TIMER_SECONDS = 3600.0


@dataclass(frozen=True)
class Timings:
    recheck_seconds: tuple[float, ...] = ()
    """When to read again after a notification."""
    poll_seconds: float = 0
    """How often to read without any notification; 0: never."""


class Reason(Flag):
    """Why `next` returned. Several reasons may hold at once, and one read serves them all."""

    NOTIFIED = auto()
    RECHECK = auto()
    POLLED = auto()
    DUE = auto()
    STOPPED = auto()


def _at_any_time() -> float:
    return 0.0


def _never() -> float:
    return NEVER


class Wakeups:
    """For one task that reads the database whenever `next` returns. No wake-up is lost:

    - `next` takes the notification before its caller reads. One that arrives during the read is kept, and `next` then
      returns at once. If it were taken after the read, it would be lost with the rows committed after the read's
      snapshot.
    - A transaction sends no notification when another one notified a few milliseconds earlier. Its rows become visible
      when it commits, which may be after the read that the other one caused. So rechecks follow each notification.
    - A listener does not receive what is sent before it listens. Its owner calls `notify` each time that it connects.
    - The poll finds the rest: triggers that are disabled, a pooler that swallows notifications.
    - A reason that comes too early (`not_before`) is kept until its time.

    Times are of the event loop's clock. The database says in how many seconds something is due, so that no clock of
    another machine is compared with this one.
    """

    def __init__(
        self,
        timings: Timings,
        *,
        not_before: Callable[[], float] = _at_any_time,
        due_at: Callable[[], float] = _never,
    ) -> None:
        """`not_before`: when a read is possible. `due_at`: when it is needed without a notification. Both are asked
        again after every call of `notify` and `check`."""
        self.is_stopped = False
        self.notified_at = 0.0
        """When the notification came that `next` returned last, or will return next."""
        self._timings = timings
        self._not_before = not_before
        self._due_at = due_at
        self._changed = asyncio.Event()
        self._is_notified = False
        self._rechecks: deque[float] = deque()
        self._next_poll: float | None = None

    @property
    def is_rechecking(self) -> bool:
        """More rechecks follow the last notification."""
        return bool(self._rechecks)

    @property
    def is_quiet(self) -> bool:
        """No notification waits, and no recheck follows."""
        return not self._is_notified and not self._rechecks

    def notify(self) -> None:
        """There may be something new to read."""
        if not self._is_notified:
            self._is_notified, self.notified_at = True, asyncio.get_running_loop().time()
        self._changed.set()

    async def changed(self) -> None:
        """Waits for `notify`, `check` or `stop`, one of which may have been called before. For a caller that waits for
        a condition of its own."""
        await self._changed.wait()
        self._changed.clear()

    async def next(self) -> Reason:
        loop = asyncio.get_running_loop()
        if self._next_poll is None:
            self._next_poll = self._poll_after(loop.time())
        while not self.is_stopped:
            now, earliest = loop.time(), self._not_before()
            if earliest <= now and (reason := self._take(now)):
                return reason
            timer = loop.call_at(min(max(earliest, self._next_at()), now + _LONGEST_TIMER_SECONDS), self._changed.set)
            try:
                await self.changed()
            finally:
                timer.cancel()
        return Reason.STOPPED

    def _take(self, now: float) -> Reason:
        reason = Reason(0)
        if self._is_notified:
            self._is_notified = False
            self._rechecks = deque(now + seconds for seconds in self._timings.recheck_seconds)
            reason |= Reason.NOTIFIED
        while self._rechecks and self._rechecks[0] <= now:
            self._rechecks.popleft()
            reason |= Reason.RECHECK
        if self._next_poll is not None and self._next_poll <= now:
            self._next_poll = self._poll_after(now)
            reason |= Reason.POLLED
        if self._due_at() <= now:
            reason |= Reason.DUE
        return reason

    def _next_at(self) -> float:
        if self._is_notified:
            return 0.0
        recheck = self._rechecks[0] if self._rechecks else NEVER
        return min(recheck, NEVER if self._next_poll is None else self._next_poll, self._due_at())

    def _poll_after(self, now: float) -> float:
        return now + self._timings.poll_seconds if self._timings.poll_seconds else NEVER

    def check(self) -> None:
        """`not_before` or `due_at` may be earlier than before."""
        self._changed.set()

    def stop(self) -> None:
        """`next` returns STOPPED, now and from now on."""
        self.is_stopped = True
        self._changed.set()
