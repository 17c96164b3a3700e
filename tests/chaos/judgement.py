"""What must hold after any fault: no job is lost, doubled in data, run twice at once, or charged without a reason."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from reactor.database.connection import Connection
from tests.support.logs import whole_lines


@dataclass
class Attempt:
    """What the handler of one attempt has left in the trace."""

    job_id: int
    attempt_id: str
    pid: int
    scope: str | None
    started: float
    last: float
    """Its last sign of life: a process that is dead or frozen leaves none."""

    def __str__(self) -> str:
        return f"job {self.job_id} attempt {self.attempt_id[:8]} ({self.started:.2f} to {self.last:.2f})"


def read_trace(file: Path) -> list[Attempt]:
    """In the order of their starts."""
    attempts: dict[str, Attempt] = {}
    for line in whole_lines(file) if file.exists() else []:
        _, job, attempt_id, pid, at, scope = line.split()
        attempt = attempts.setdefault(
            attempt_id, Attempt(int(job), attempt_id, int(pid), None if scope == "-" else scope, float(at), float(at))
        )
        attempt.last = float(at)
    return sorted(attempts.values(), key=lambda attempt: attempt.started)


async def judge(
    connection: Connection,
    trace: Iterable[Attempt],
    acknowledged: Collection[UUID] = (),
    *,
    alive: Collection[int] | None = None,
    bereft: Collection[str] = (),
    excused: Collection[int] = (),
    since: float = 0.0,
) -> list[str]:
    """What is wrong, each find in a line.

    `alive`: the worker processes that survived. An attempt may be charged if its process did not: it died with its
    handler, or before the end of the attempt was committed. None: all survived, or must be treated as if they had.
    `bereft`: the pods that lost a worker process. An attempt of theirs that lost its lease may be charged although it
    left no trace: its process had claimed the job, and other pods can't know that it had not started it.
    `excused`: jobs that may be charged whatever happened to them.
    `since`: attempts that started before may overlap others.
    """
    attempts = list(trace)
    return [
        *await _lost(connection, acknowledged),
        *await _doubled(connection),
        *_at_once(attempts, since),
        *await _early(connection),
        *await _charged(connection, attempts, alive, bereft, excused),
    ]


async def _lost(connection: Connection, acknowledged: Collection[UUID]) -> list[str]:
    missing = await connection.fetch(
        "select id from unnest($1::uuid[]) id except select pipeline_id from reactor.jobs order by 1",
        list(acknowledged),
    )
    unfinished = await connection.fetch(
        "select id, job_type, state, error, case when finished_at is null then 'lost' else 'failed' end as kind "
        "from reactor.jobs where state <> case job_type when 'poison' then 'failed' else 'completed' end order by 1"
    )
    steps = await connection.fetch(
        "select job_id, count(*) from reactor.steps where state = 'completed' group by 1 having count(*) <> 4"
    )
    children = await connection.fetch(
        "select p.id, count(c.id) from reactor.jobs p left join reactor.jobs c on c.parent_id = p.id "
        "where p.job_type = 'family' and p.state = 'completed' group by 1 having count(c.id) < 2"
    )
    held = await connection.fetch("select id from reactor.jobs where worker_id is not null")
    return [
        *(f"lost: pipeline {row['id']} was acknowledged and does not exist" for row in missing),
        *(
            f"{row['kind']}: job {row['id']} ({row['job_type']}) is {row['state']}: {row['error']}"
            for row in unfinished
        ),
        *(f"lost: job {row['job_id']} has {row['count']} of 4 steps" for row in steps),
        *(f"lost: job {row['id']} has {row['count']} of 2 children" for row in children),
        *(f"lost: job {row['id']} is still held by a worker" for row in held),
    ]


async def _doubled(connection: Connection) -> list[str]:
    entries = await connection.fetch(
        "select coalesce(j.id, l.job_id) as id, count(l.job_id) from ledger l full join "
        "(select id from reactor.jobs where job_type in ('ledger', 'family') and state = 'completed') j "
        "on j.id = l.job_id group by 1 having count(l.job_id) <> 1 or count(j.id) = 0"
    )
    children = await connection.fetch(
        "select parent_id, count(*) from reactor.jobs where parent_id is not null group by 1 having count(*) > 2"
    )
    return [
        *(f"doubled: job {row['id']} has {row['count']} rows in the ledger" for row in entries),
        *(f"doubled: job {row['parent_id']} has {row['count']} children" for row in children),
    ]


def _at_once(attempts: Iterable[Attempt], since: float) -> list[str]:
    """Two attempts of one job, or of one scope, of which the first leaves a trace after the start of the second."""
    chains: dict[object, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.started >= since:
            chains[attempt.job_id].append(attempt)
            if attempt.scope is not None:
                chains[f"scope {attempt.scope}"].append(attempt)
    found = []
    for chain in chains.values():
        latest: Attempt | None = None
        for attempt in chain:
            if latest is not None and latest.last > attempt.started:
                found.append(f"at once: {latest} and {attempt}")
            if latest is None or attempt.last > latest.last:
                latest = attempt
    return sorted(set(found))


async def _early(connection: Connection) -> list[str]:
    """`delay` in a payload: the job was submitted with this many seconds to wait, of the database clock."""
    rows = await connection.fetch(
        "select id, started_at - created_at as waited from reactor.jobs where started_at < "
        "created_at + interval '1 s' * (payload->>'delay')::float8 order by 1"
    )
    return [f"early: job {row['id']} started {row['waited']} after its submission" for row in rows]


async def _charged(
    connection: Connection,
    attempts: Collection[Attempt],
    alive: Collection[int] | None,
    bereft: Collection[str],
    excused: Collection[int],
) -> list[str]:
    died: dict[int, int] = defaultdict(int)
    for attempt in attempts:
        died[attempt.job_id] += alive is not None and attempt.pid not in alive
    unstarted = await connection.fetch(
        "select job_id from reactor.attempts where outcome = 'lease_lost' and pod = any ($1) "
        "and attempt_id::text <> all ($2)",
        list(bereft),
        [attempt.attempt_id for attempt in attempts],
    )
    for row in unstarted:
        died[row["job_id"]] += 1
    rows = await connection.fetch(
        "select id, job_type, attempts, (select string_agg(a.outcome || ': ' || coalesce(a.error, ''), '; ') "
        "from reactor.attempts a where a.job_id = j.id) as history "
        "from reactor.jobs j where attempts > 1 order by 1"
    )
    return [
        f"charged: job {row['id']} ({row['job_type']}) has {row['attempts']} attempts, "
        f"{died[row['id']]} of them in processes that died: {row['history']}"
        for row in rows
        if row["attempts"] > 1 + died[row["id"]] and row["id"] not in excused
    ]
