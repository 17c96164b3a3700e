"""Whether every job that can run is picked up, and every wake-up heard: there is no fallback poll in this test."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from tests.stress.report import Report

_LONGEST_SECONDS = 2.0

# What a claim may take now. Jobs of a scope are claimable one at a time, and any of them may be first.
_CLAIMABLE = """
with held as materialized (select h.queue, h.scope from reactor.jobs h where h.worker_id is not null)
select j.id, j.queue, j.job_type from reactor.jobs j
where j.state = 'pending' and j.run_after is null and not j.parked
    and not (select s.draining from reactor.settings s)
    and j.queue not in (select q.name from reactor.queues q where q.paused
        or q.max_running <= (select count(*) from held h where h.queue = q.name))
    and (j.scope is null or j.scope not in (select h.scope from held h where h.scope is not null))
order by j.id limit 200
"""


@dataclass(frozen=True)
class Resting:
    """A worker that waits for a wake-up, with free slots."""

    worker: Worker
    since: float


class Idleness:
    def __init__(self, report: Report, resting: Callable[[], Iterable[Resting]]) -> None:
        self._report = report
        self._resting = resting
        self._claimable_since: dict[int, float] = {}
        self._reported: set[tuple[UUID, int]] = set()
        self.was_missed = False
        """A wake-up was missed since this was reset."""

    async def check(self, connection: Connection, now: float) -> None:
        """`now`: before the snapshot was taken."""
        resting = list(self._resting())
        claimable = await connection.fetch(_CLAIMABLE)
        self._claimable_since = {row["id"]: self._claimable_since.get(row["id"], now) for row in claimable}
        for job_id, queue, job_type in claimable:
            since = self._claimable_since[job_id]
            for one in resting:
                worker = one.worker
                idle_seconds = now - max(since, one.since)
                if (
                    idle_seconds > _LONGEST_SECONDS
                    and job_type in worker.job_types
                    and (not worker.queues or queue in worker.queues)
                ):
                    self.was_missed = True
                    if (worker.id, job_id) not in self._reported:
                        self._reported.add((worker.id, job_id))
                        self._report.violation(
                            "lost wake-up",
                            f"job {job_id} ({queue}, {job_type}) could run for {now - since:.1f} s "
                            f"while {worker.pod} was idle for {now - one.since:.1f} s",
                        )
