"""What must hold in every snapshot of the tables: one query each, which returns the offenders.

All of them run in one REPEATABLE READ transaction. A new rule of the schema gets its query here; what takes more than
one snapshot to judge is in limits.py and idleness.py.
"""

from dataclasses import dataclass

import asyncpg

from reactor.database.connection import Connection
from tests.stress.report import Report


@dataclass(frozen=True)
class Invariant:
    kind: str
    offenders: str
    """A query."""


# Until when a line may stay closed: infinity while a limit of its lane is full, or while there are news of it that no
# claim has taken; NULL if nothing keeps it closed.
_LANE_LIMITS = """
cross join lateral (
    select max(o.opens_at) as opens_at from (
        select timestamptz 'infinity' as opens_at from reactor.departures d
        where d.queue in ('', l.queue) and d.job_type in ('', l.job_type) and d.lane in ('*', l.lane)
        union all
        select case when r.max_running <= (
                select count(*) from reactor.places p
                where p.lane = l.lane and r.queue in ('', p.queue) and r.job_type in ('', p.job_type))
            then 'infinity'
            else (select s.paid_until - (r.burst - 1) * r.every from reactor.rates s
                where s.queue = r.queue and s.job_type = r.job_type and s.lane = l.lane
                    and s.paced_at = r.paced_at) end
        from reactor.limit_rules r
        where r.queue in ('', l.queue) and r.job_type in ('', l.job_type)
            and (r.lane = l.lane or r.lane = '*' and not exists (
                select from reactor.limits e
                where e.queue = r.queue and e.job_type = r.job_type and e.lane = l.lane))
    ) o
) r
"""

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
        " where exclusive and (state in ('waiting', 'pending', 'running') or worker_id is not null)"
        " group by scope having count(*) > 1",
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
        "a job that must not start again is unfinished",
        "select id, state, attempts, quota from reactor.jobs where started_once and state in ('waiting', 'pending')",
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
        "a place has no holder",
        "select p.job_id, p.lane, j.state, j.worker_id, j.counted from reactor.places p"
        " left join reactor.jobs j on j.id = p.job_id where j.worker_id is null or not j.counted"
        " or (p.queue, p.job_type, coalesce(p.lane, '')) <> (j.queue, j.job_type, coalesce(j.lane, ''))",
    ),
    Invariant(
        "a counted job has no place",
        "select j.id, j.state, j.lane from reactor.jobs j where j.worker_id is not null and j.counted"
        " and not exists (select from reactor.places p where p.job_id = j.id)",
    ),
    Invariant(
        "claims know nothing of a ready job's line",
        "select j.id, j.queue, j.job_type, j.lane, j.priority from reactor.jobs j"
        " where j.state = 'pending' and j.run_after is null and not j.parked and j.lane is not null"
        " and not exists (select from reactor.lines l where (l.queue, l.job_type, l.lane, l.priority)"
        "  = (j.queue, j.job_type, j.lane, j.priority))"
        " and not exists (select from reactor.arrivals a where (a.queue, a.job_type, a.lane, a.priority)"
        "  = (j.queue, j.job_type, j.lane, j.priority))",
    ),
    Invariant(
        # A limit of its lane must be full, or there must be news for the next claim.
        "a line is closed without a reason",
        f"select l.queue, l.job_type, l.lane, l.priority from reactor.lines l {_LANE_LIMITS}"
        " where l.opens_at = 'infinity' and l.lane <> '' and r.opens_at is distinct from 'infinity'",
    ),
    Invariant(
        # A second: of limits that are new to claims.
        "a line opens too late",
        "select l.queue, l.job_type, l.lane, l.priority, l.opens_at - clock_timestamp() as opens_in,"
        f" r.opens_at - clock_timestamp() as may_open_in from reactor.lines l {_LANE_LIMITS}"
        " where l.opens_at < 'infinity' and l.opens_at > clock_timestamp() + interval '1.1 seconds'"
        " and coalesce(r.opens_at < l.opens_at - interval '1 millisecond', true)",
    ),
    Invariant(
        "a rate is paid further ahead than its burst",
        "select s.queue, s.job_type, s.lane, s.paid_until - clock_timestamp() as ahead, r.burst, r.every"
        " from reactor.rates s join reactor.limit_rules r on r.queue = s.queue and r.job_type = s.job_type"
        " and r.paced_at = s.paced_at"
        " and (r.lane = s.lane or r.lane = '*' and s.lane <> '' and not exists (select from reactor.limits e"
        "  where e.queue = r.queue and e.job_type = r.job_type and e.lane = s.lane))"
        " where s.paid_until > clock_timestamp() + r.burst * r.every + interval '1 millisecond'",
    ),
    Invariant(
        "a step runs without its job",
        "select s.job_id, s.name, j.state from reactor.steps s join reactor.jobs j on j.id = s.job_id"
        " where s.state = 'running' and j.state in ('pending', 'failed', 'cancelled')",
    ),
    Invariant(
        "the counts of a job are not those of its steps",
        "select j.id, j.state, j.step_counts, reactor.count_steps(j.id) as counted from reactor.jobs j"
        " where j.state <> 'running' and j.step_counts is distinct from reactor.count_steps(j.id)",
    ),
    Invariant(
        "a job has ended well, and one of its steps has not",
        "select s.job_id, s.name, s.state, j.state as job from reactor.steps s join reactor.jobs j on j.id = s.job_id"
        " where s.state in ('pending', 'running') and j.state in ('completed', 'partial')",
    ),
    Invariant(
        "a duration is negative, or was not stored",
        "select a.job_id, a.outcome, a.waited_seconds, a.queued_seconds from reactor.attempts a"
        " where coalesce(least(a.waited_seconds, a.queued_seconds), -1) < 0",
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
    for kind, offender in await find(connection, invariants):
        report.violation(kind, ", ".join(f"{name} {value}" for name, value in offender.items()))


async def find(connection: Connection, invariants: tuple[Invariant, ...]) -> list[tuple[str, asyncpg.Record]]:
    """What breaks them, up to three of each."""
    return [
        (invariant.kind, offender)
        for invariant in invariants
        for offender in await connection.fetch(f"{invariant.offenders} limit 3")
    ]
