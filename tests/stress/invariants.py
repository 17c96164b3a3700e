"""What must hold in every snapshot of the tables: one query each, which returns the offenders.

All of them run in one REPEATABLE READ transaction. A new rule of the schema (a limit, a rate, a lane) gets its query
here; what takes more than one snapshot to judge is in limits.py and idleness.py.
"""

from dataclasses import dataclass

from reactor.database.connection import Connection
from tests.stress.report import Report


@dataclass(frozen=True)
class Invariant:
    kind: str
    offenders: str
    """A query."""


INVARIANTS = (
    Invariant(
        "two holders of a scope",
        "select scope, array_agg(id) as ids from reactor.jobs where worker_id is not null and scope is not null"
        " group by scope having count(*) > 1",
    ),
    Invariant(
        "two current jobs of a scope",
        "select scope, array_agg(id) as ids from reactor.jobs where is_current group by scope having count(*) > 1",
    ),
    Invariant(
        # Prunes of this test keep the current jobs.
        "the current job is not the one claimed last",
        "select l.scope, l.id from ("
        " select distinct on (scope) scope, id, is_current from reactor.jobs"
        " where scope is not null and locked_at is not null order by scope, locked_at desc) l where not l.is_current",
    ),
    Invariant(
        "two unfinished exclusive jobs of a scope",
        "select scope, array_agg(id) as ids from reactor.jobs"
        " where exclusive and state in ('waiting', 'pending', 'running') group by scope having count(*) > 1",
    ),
    Invariant(
        "columns contradict the state",
        "select id, state, attempt_id, worker_id, attempts, quota, finished_at, parked, run_after from reactor.jobs"
        " where not case state"
        " when 'running' then attempt_id is not null and worker_id is not null and attempts between 1 and quota"
        "  and finished_at is null and run_after is null and not parked"
        " when 'pending' then attempt_id is null and finished_at is null and waiting_on <= 0"
        " when 'waiting' then attempt_id is null and finished_at is null and not parked"
        # A retry that is not done yet has suspended some.
        "  and (waiting_on > 0 or exists (select from reactor.retries))"
        " else finished_at is not null and not parked end",
    ),
    Invariant(
        "a job runs with an open need",
        "select j.id, j.state, d.depends_on from reactor.jobs j join reactor.dependencies d on d.job_id = j.id"
        " where j.state in ('pending', 'running') and d.resolved is not true",
    ),
    Invariant(
        "waiting_on is not the number of open needs",
        "select j.id, j.waiting_on, count(d.job_id) as open from reactor.jobs j"
        " left join reactor.dependencies d on d.job_id = j.id and not d.resolved"
        " where j.state = 'waiting' and (j.waiting_on > 0 or not exists (select from reactor.retries))"
        " group by j.id having j.waiting_on <> count(d.job_id)",
    ),
    Invariant(
        # Large ends leave some for later transactions.
        "a job waits for nothing",
        "select j.id, d.depends_on, p.state as its_state, d.needs from reactor.jobs j"
        " join reactor.dependencies d on d.job_id = j.id and not d.resolved"
        " join reactor.jobs p on p.id = d.depends_on"
        " where j.state = 'waiting' and p.state in ('completed', 'partial', 'failed', 'cancelled')"
        " and (j.waiting_on > 0 or not exists (select from reactor.retries))"
        " and not exists (select from reactor.unresolved u where u.depends_on = d.depends_on"
        "  and d.job_id > u.after_id and d.job_id <= u.until_id)",
    ),
    Invariant(
        "an edge is not connected",
        "select job_id, depends_on from reactor.dependencies where resolved is null",
    ),
    Invariant(
        # Behind a holder of the scope, or its leader: the job of the same scope, queue and type that claims can see.
        # The next claim unparks the leader of a scope that was locked when it became free.
        "a job is parked behind nothing",
        "select j.id, j.scope, j.queue, j.job_type from reactor.jobs j where j.state = 'pending' and j.parked"
        " and j.scope not in (select scope from reactor.jobs where worker_id is not null and scope is not null)"
        " and (j.scope, j.queue, j.job_type) not in (select scope, queue, job_type from reactor.jobs"
        " where state = 'pending' and not parked and run_after is null and scope is not null)"
        " and j.scope not in (select scope from reactor.freed_scopes)",
    ),
    Invariant(
        "the phase contradicts the state",
        "select id, state, phase, parked, run_after, scope, worker_id, holds_scope from reactor.jobs"
        " where phase <> reactor.phase(state, run_after, parked, job_type, exclusive)"
        " or holds_scope <> (scope is not null and worker_id is not null)",
    ),
    Invariant(
        "no claim has a job that is held",
        "select id, state, worker_id from reactor.jobs j where worker_id is not null and not exists ("
        " select from reactor.claims c where c.worker_id = j.worker_id and j.id = any (c.job_ids))",
    ),
    Invariant(
        "a parked job is due later",
        "select id, scope, run_after from reactor.jobs where state = 'pending' and parked and run_after is not null",
    ),
    Invariant(
        "a step runs without its job",
        "select s.job_id, s.name, j.state from reactor.steps s join reactor.jobs j on j.id = s.job_id"
        " where s.state = 'running' and j.state in ('pending', 'failed', 'cancelled')",
    ),
)

AT_REST = (
    Invariant("unfinished at rest", "select id, state from reactor.jobs where finished_at is null"),
    Invariant("held at rest", "select id, state, worker_id from reactor.jobs where worker_id is not null"),
    Invariant("parked at rest", "select id, state from reactor.jobs where parked"),
    Invariant("unresolved at rest", "select depends_on, after_id, until_id, not_before from reactor.unresolved"),
    Invariant("a retry at rest", "select id, accepted_at, not_before from reactor.retries"),
)
"""In addition, when nothing is left to do."""


async def check(connection: Connection, report: Report, invariants: tuple[Invariant, ...] = INVARIANTS) -> None:
    for invariant in invariants:
        for offender in await connection.fetch(f"{invariant.offenders} limit 3"):
            report.violation(invariant.kind, ", ".join(f"{name} {value}" for name, value in offender.items()))
