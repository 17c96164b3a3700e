"""Whether `reactor.workload` and `why` agree with the tables on what may run, and on what a limit stops."""

import json
import random
from collections.abc import Sequence

from reactor.database import statements
from reactor.database.connection import Connection
from tests.stress.idleness import LINES
from tests.stress.report import Report

_SHARE = 0.1
"""Of the snapshots."""

_WORKLOAD = """
with counted as (
    select j.queue, j.job_type, count(*) filter (where j.worker_id is not null) as running,
        count(*) filter (where j.state = 'pending' and j.run_after is null and not j.parked) as ready,
        count(*) filter (where j.state = 'pending' and j.run_after is not null) as scheduled,
        count(*) filter (where j.state = 'pending' and j.parked) as parked,
        count(*) filter (where j.state = 'waiting') as waiting
    from reactor.jobs j group by 1, 2
)
select c.*, w.due, w.running as w_running, w.wanted, w.scheduled as w_scheduled, w.parked as w_parked,
    w.waiting as w_waiting
from counted c left join reactor.workload w on w.queue = c.queue and w.job_type = c.job_type
where (coalesce(w.running, 0), coalesce(w.parked, 0), coalesce(w.waiting, 0)) <> (c.running, c.parked, c.waiting)
    or coalesce(w.due, 0) not between c.ready and c.ready + c.scheduled
    or coalesce(w.wanted, 0) not between c.running and c.running + coalesce(w.due, 0)
"""
_WANTED = "select coalesce(sum(w.wanted - w.running), 0)::int from reactor.workload w"
# A job behind a limit that is full.
_LIMITED = f"""{LINES}
select j.id from reactor.jobs j
join full_line f on f.queue = j.queue and f.job_type = j.job_type and f.lane is not distinct from j.lane
where j.state = 'pending' limit 1
"""


class Explanations:
    def __init__(self, report: Report) -> None:
        self._report = report

    async def check(self, connection: Connection, claimable: Sequence[int]) -> None:
        """In the transaction of the snapshot that showed these."""
        if random.random() > _SHARE:
            return
        for offender in await connection.fetch(_WORKLOAD):
            self._report.violation("workload", ", ".join(f"{name} {value}" for name, value in offender.items()))
        if claimable:
            if await connection.fetchval(_WANTED) < 1:
                self._report.violation("workload", f"nothing more is wanted, but jobs {claimable[:5]} could run")
            await self._check_why(connection, random.choice(claimable), is_limited=False)
        limited = await connection.fetchval(_LIMITED)
        if limited is not None:
            await self._check_why(connection, limited, is_limited=True)

    async def _check_why(self, connection: Connection, job_id: int, *, is_limited: bool) -> None:
        row = await connection.fetchrow(statements.WHY, job_id)
        assert row is not None
        limits = [json.loads(limit) for limit in row["limits"]]
        if bool(limits) != is_limited or (not is_limited and (row["is_paused"] or row["draining"] or row["holder_id"])):
            self._report.violation("why", f"job {job_id}: {'' if is_limited else 'not '}limited, but {dict(row)}")
