"""Whether every job that can run is picked up, and every wake-up heard: there is no fallback poll in this test."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from tests.stress.report import Report

_LONGEST_SECONDS = 2.0
"""For a worker that waits."""
_LONGEST_IN_VAIN_SECONDS = 5.0
"""For one that claims again and again, and does not get the job: other claims may have the lock of its kind."""

# What a claim may take now. Jobs of a scope are claimable one at a time, and any of them may be first; but if the one
# that leads is in another lane, only that one. Limits count the jobs that workers hold; of rates, the engine's own time
# is used, which another query checks (invariants.py).
# Limits that are full, by lines: queue, type and lane of pending jobs.
LINES = """
with held as materialized (
    select h.queue, h.job_type, h.lane, h.scope from reactor.jobs h where h.worker_id is not null
), line as materialized (
    select distinct j.queue, j.job_type, j.lane from reactor.jobs j where j.state = 'pending' and j.job_type is not null
), rule as materialized (
    select l.queue, l.job_type, l.lane, r.max_running, r.burst, r.every, r.paced_at, r.queue as of_queue,
        r.job_type as of_type, r.lane <> '' as is_of_lane
    from line l
    join reactor.limit_rules r on r.queue in ('', l.queue) and r.job_type in ('', l.job_type)
        and (r.lane = '' or r.lane = l.lane or r.lane = '*' and l.lane is not null and not exists (
            select from reactor.limits e where e.queue = r.queue and e.job_type = r.job_type and e.lane = l.lane))
), full_line as materialized (
    select distinct r.queue, r.job_type, r.lane from rule r
    where r.max_running <= (
        select count(*) from held h
        where r.of_queue in ('', h.queue) and r.of_type in ('', h.job_type) and (not r.is_of_lane or h.lane = r.lane))
)"""
CLAIMABLE = f"""{LINES}, used_up as materialized (
    select distinct r.queue, r.job_type, r.lane from rule r
    join reactor.rates s on s.queue = r.of_queue and s.job_type = r.of_type and s.paced_at = r.paced_at
        and s.lane = case when r.is_of_lane then r.lane else '' end
    where s.paid_until > clock_timestamp() + (r.burst - 1) * r.every
), leader as materialized (
    select distinct on (j.scope, j.queue, j.job_type) j.scope, j.queue, j.job_type, j.lane from reactor.jobs j
    where j.scope is not null and j.state = 'pending' and j.run_after is null
    order by j.scope, j.queue, j.job_type, j.priority, j.id
)
select j.id, j.queue, j.job_type, j.lane, j.scope from reactor.jobs j
left join full_line f on f.queue = j.queue and f.job_type = j.job_type and f.lane is not distinct from j.lane
left join used_up u on u.queue = j.queue and u.job_type = j.job_type and u.lane is not distinct from j.lane
left join leader l on l.scope = j.scope and l.queue = j.queue and l.job_type = j.job_type
where j.state = 'pending' and j.run_after is null and not j.parked and j.job_type is not null
    and f.queue is null and u.queue is null
    and (j.scope is null or l.lane is not distinct from j.lane)
    and not (select s.draining from reactor.settings s)
    and j.queue not in (select q.name from reactor.queues q where q.paused)
    and (j.scope is null or j.scope not in (select h.scope from held h where h.scope is not null))
order by j.id limit 200
"""


@dataclass(frozen=True)
class Resting:
    """A worker with free slots."""

    worker: Worker
    waits_since: float
    """Since when it waits for a wake-up."""
    idle_since: float
    """Since when its claims got less than they asked for."""
    full_queues: Collection[str]
    """Those that have all the slots that they may have."""

    def serves(self, queue: str, job_type: str) -> bool:
        worker = self.worker
        is_served = job_type in worker.job_types and (not worker.queues or queue in worker.queues)
        return is_served and queue not in self.full_queues


class Idleness:
    def __init__(self, report: Report, resting: Callable[[], Iterable[Resting]]) -> None:
        self._report = report
        self._resting = resting
        self._claimable_since: dict[int, float] = {}
        self._reported: set[tuple[UUID, int]] = set()

    async def check(self, connection: Connection, now: float) -> list[int]:
        """`now`: before the snapshot was taken. Returns jobs that can be claimed."""
        resting = list(self._resting())
        claimable = await connection.fetch(CLAIMABLE)
        self._claimable_since = {row["id"]: self._claimable_since.get(row["id"], now) for row in claimable}
        for job_id, queue, job_type, lane, scope in claimable:
            since = self._claimable_since[job_id]
            for one in resting:
                waits_seconds, idle_seconds = now - max(since, one.waits_since), now - max(since, one.idle_since)
                if (
                    (waits_seconds > _LONGEST_SECONDS or idle_seconds > _LONGEST_IN_VAIN_SECONDS)
                    and one.serves(queue, job_type)
                    and (one.worker.id, job_id) not in self._reported
                ):
                    self._reported.add((one.worker.id, job_id))
                    self._report.violation(
                        "lost wake-up",
                        f"job {job_id} ({queue}, {job_type}, lane {lane}, scope {scope}) could run for "
                        f"{now - since:.1f} s while {one.worker.pod} waited for {now - one.waits_since:.1f} s "
                        f"and was idle for {now - one.idle_since:.1f} s",
                    )
        return [row["id"] for row in claimable]
