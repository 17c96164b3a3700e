"""Whether every job that becomes ready is followed by a notification."""

import time
from collections import deque
from collections.abc import Iterable

from tests.stress.journal import Entry
from tests.stress.report import Report

_RECENT_SECONDS = 0.1
"""A transaction does not notify if another one did so 10 ms before: workers look again after each notification. The
rest is for a session that has to wait for a CPU between that decision and its entry in the journal."""
_DELIVERED_SECONDS = 0.4
"""After the commit. Later ones are of other jobs."""


class Wakeups:
    """Notifications and journal carry the clock of the same machine."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._heard: deque[float] = deque(maxlen=100_000)
        self._waiting: deque[tuple[float, Entry]] = deque()
        """Jobs that became ready, and when they were seen."""

    def heard(self) -> None:
        self._heard.append(time.time())

    def check(self, ready: Iterable[Entry]) -> None:
        now = time.time()
        self._waiting.extend((now, entry) for entry in ready)
        while self._waiting and self._waiting[0][0] < now - _DELIVERED_SECONDS:
            seen_at, entry = self._waiting.popleft()
            since = entry.at - _RECENT_SECONDS
            if not any(since <= heard_at <= seen_at + _DELIVERED_SECONDS for heard_at in reversed(self._heard)):
                before = max((heard_at for heard_at in self._heard if heard_at < since), default=0.0)
                self._report.violation(
                    "no notification",
                    f"job {entry.id} became ready without one; the last one was heard {entry.at - before:.3f} s before",
                )
