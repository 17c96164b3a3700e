"""Whether every job that becomes ready is followed by a notification."""

import time
from collections import deque
from collections.abc import Iterable

from tests.stress.journal import Entry
from tests.stress.report import Report

_RECENT_SECONDS = 0.02
"""A transaction does not notify if another one did so 10 ms before: workers look again after each notification."""
_DELIVERED_SECONDS = 1.0


class Wakeups:
    """Notifications and journal carry the clock of the same machine."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._heard_at = 0.0
        self._waiting: deque[tuple[float, Entry]] = deque()
        """Jobs that became ready, and when they were seen."""

    def heard(self) -> None:
        self._heard_at = time.time()

    def check(self, ready: Iterable[Entry]) -> None:
        now = time.time()
        self._waiting.extend((now, entry) for entry in ready)
        while self._waiting and self._waiting[0][0] < now - _DELIVERED_SECONDS:
            _, entry = self._waiting.popleft()
            if self._heard_at < entry.at - _RECENT_SECONDS:
                self._report.violation(
                    "no notification",
                    f"job {entry.id} became ready {now - entry.at:.2f} s ago; "
                    f"the last notification was {entry.at - self._heard_at:.3f} s before",
                )
