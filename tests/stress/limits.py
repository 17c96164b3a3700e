"""Whether queues stay within their limits, judged over several snapshots."""

from reactor.database.connection import Connection
from tests.stress.report import Report

_HELD = """
select q.name, q.max_running,
    (select count(*)::int from reactor.jobs j where j.queue = q.name and j.worker_id is not null) as held
from reactor.queues q
"""
_IN_FORCE_SECONDS = 1.0
"""For how long after a change a claim that read the limit before may still commit."""
_NO_LIMIT = 2**31


class Limits:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._history: dict[str, list[tuple[float, int]]] = {}
        """Of each queue: when a limit was in force, and the limit."""
        self._ceiling: dict[str, int] = {}
        """What a queue held when its limit was lowered. From there the number may only fall."""

    def change(self, queue: str, max_running: int | None, now: float) -> None:
        """Called before the change is sent, and when it is confirmed. Some last shorter than a snapshot's interval."""
        self._history.setdefault(queue, [(now, _NO_LIMIT)]).append((now, _limit(max_running)))

    async def check(self, connection: Connection, now: float) -> None:
        """`now`: before the snapshot was taken."""
        for queue, max_running, held in await connection.fetch(_HELD):
            self.change(queue, max_running, now)
            limit = _limit(max_running)
            recent = [one for one in self._history[queue] if one[0] > now - _IN_FORCE_SECONDS]
            self._history[queue] = recent
            in_force = max(limit for _, limit in recent)
            allowed = max(in_force, self._ceiling.get(queue, 0))
            if held > allowed:
                self._report.violation("limit", f"queue {queue} runs {held} jobs, and may run {allowed}")
            self._ceiling[queue] = held if held > limit else 0


def _limit(max_running: int | None) -> int:
    return _NO_LIMIT if max_running is None else max_running
