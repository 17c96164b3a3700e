"""Steps that a producer names, and the counts that are stored with the job."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from reactor import NewJob, Pipeline, submit, submit_many
from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.lifecycle.steps import Planned, plan_steps
from reactor.outcome import Completed, Ending, Errored, Outcome, Partial
from tests.support.jobs import claim, insert

NAMES = ["2026-01-16/gpt-5", "2026-01-16/opus", "2026-01-17/gpt-5"]


async def states(connection: Connection, job_id: int) -> dict[str, str]:
    rows = await connection.fetch("select name, state from reactor.steps where job_id = $1 order by position", job_id)
    return {row["name"]: row["state"] for row in rows}


async def counts(connection: Connection, job_id: int) -> dict[str, Any] | None:
    stored = await connection.fetchval("select step_counts from reactor.jobs where id = $1", job_id)
    return None if stored is None else {name: n for name, n in json.loads(stored).items() if n}


async def by_submit(connection: Connection) -> int:
    return (await submit(connection, "work", steps=NAMES)).id


async def by_submit_many(connection: Connection) -> int:
    jobs = [NewJob(job_type="other"), NewJob(job_type="work", steps=NAMES)]
    return (await submit_many(connection, jobs))[1].id


async def by_pipeline(connection: Connection) -> int:
    pipeline = Pipeline()
    first = pipeline.job("other")
    pipeline.job("work", depends_on=[first], steps=NAMES)
    return (await pipeline.submit(connection)).jobs[1]


async def by_function(connection: Connection) -> int:
    found: int = await connection.fetchval("select id from reactor.submit('work', '{}', steps => $1)", NAMES)
    return found


async def by_insert(connection: Connection) -> int:
    async with connection.transaction():
        job_id: int = await connection.fetchval("insert into reactor.jobs (job_type) values ('work') returning id")
        await connection.execute("select reactor.add_steps($1, $2)", job_id, NAMES[:1])
        await connection.execute("select reactor.add_steps($1, $2)", job_id, NAMES[1:])
        return job_id


@pytest.mark.parametrize("way", [by_submit, by_submit_many, by_pipeline, by_function, by_insert])
async def test_steps_named_at_submission_exist_and_are_counted_before_a_claim(
    connection: Connection, way: Callable[[Connection], Awaitable[int]]
) -> None:
    """J16: by a producer that can't write steps itself."""
    await connection.execute("set role reactor_producer")
    job_id = await way(connection)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'x', 9)", job_id)
    await connection.execute("reset role")
    assert await states(connection, job_id) == dict.fromkeys(NAMES, "pending")
    assert await counts(connection, job_id) == {"total": 3, "pending": 3}


async def test_a_job_without_steps_has_no_counts(connection: Connection) -> None:
    assert await counts(connection, await insert(connection)) is None


async def test_steps_are_only_named_by_the_transaction_that_inserts_their_job(connection: Connection) -> None:
    job_id = await insert(connection)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="was not inserted by this transaction"):
        await connection.execute("select reactor.add_steps($1, $2)", job_id, NAMES)


async def test_a_job_that_already_exists_gets_no_further_steps(connection: Connection) -> None:
    first = await submit(connection, "work", idempotency_key="k", steps=["a"])
    again = await submit(connection, "work", idempotency_key="k", steps=["b"])
    assert (again.id, again.outcome) == (first.id, "existing")
    assert await states(connection, first.id) == {"a": "pending"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b", "a"], "the step 'a' is named twice"),
        (["a", ""], "'' is not a valid name of a step"),
        (["x" * 501], "is not a valid name of a step"),
        (["a\nb"], "is not a valid name of a step"),
        ([["a"], ["b"]], "steps must be a plain array of texts"),
        (["a", None], "steps must be a plain array of texts"),
    ],
    ids=["twice", "empty", "long", "control character", "two dimensions", "NULL"],
)
async def test_invalid_names_of_steps_are_refused(connection: Connection, names: list[Any], message: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=message) as caught:
        await connection.execute("select reactor.submit('work', '{}', steps => $1)", names)
    assert caught.value.hint
    assert await connection.fetchval("select count(*) from reactor.jobs") == 0


async def test_too_many_steps_are_refused(connection: Connection) -> None:
    names = [str(n) for n in range(100_001)]
    with pytest.raises(asyncpg.ProgramLimitExceededError, match="can't have 100001 steps"):
        await connection.execute("select reactor.submit('work', '{}', steps => $1)", names)
    await connection.execute("select reactor.submit('work', '{}', steps => $1)", names[1:])
    assert await connection.fetchval("select step_counts ->> 'pending' from reactor.jobs") == "100000"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Completed(), {"total": 3, "skipped": 3}),
        (Partial(), {"total": 3, "skipped": 3}),
        (Errored("no"), {"total": 3, "pending": 3}),
    ],
    ids=["completed", "partial", "failed attempt"],
)
async def test_steps_that_the_handler_does_not_run(
    connection: Connection, worker: Worker, outcome: Outcome, expected: dict[str, int]
) -> None:
    """Named at submission, and not part of its plan: skipped when the job has ended well, else still to come."""
    job = await claim(connection, worker, (await submit(connection, "work", steps=NAMES)).id)
    await settle(connection, [Ending(job.id, job.attempt_id, outcome)])
    assert await counts(connection, job.id) == expected


@pytest.mark.parametrize("end", ["cancel", "error"])
async def test_counts_follow_steps_that_are_interrupted(connection: Connection, worker: Worker, end: str) -> None:
    """J4: a step that was running is pending again, in its row and in the counts."""
    job = await claim(connection, worker, await insert(connection))
    names = {"a": Planned(0, 1)}, {"b": Planned(1, 1)}
    await plan_steps(connection, job.id, job.attempt_id, names[0], started=True, lists_stored=True)
    assert await counts(connection, job.id) == {"total": 1, "running": 1, "current": "a"}
    await plan_steps(connection, job.id, job.attempt_id, names[1], started=False, lists_stored=True)
    assert await counts(connection, job.id) == {"total": 2, "pending": 1, "running": 1, "current": "a"}
    if end == "cancel":
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job.id)
    else:
        await settle(connection, [Ending(job.id, job.attempt_id, Errored("no"))])
    assert await counts(connection, job.id) == {"total": 2, "pending": 2}


async def test_a_worker_takes_over_the_named_steps(connection: Connection, worker: Worker) -> None:
    """The plan adds to them, in its order."""
    job = await claim(connection, worker, (await submit(connection, "work", steps=NAMES)).id)
    planned = {name: Planned(n, 2) for n, name in enumerate([*NAMES[1:], "new"])}
    stored = await plan_steps(connection, job.id, job.attempt_id, planned, started=False, lists_stored=True)
    assert stored is not None
    assert list(stored) == NAMES
    assert all(step.is_submitted for step in stored.values())
    assert await counts(connection, job.id) == {"total": 4, "pending": 4}


async def test_deleted_jobs_take_their_steps_along(connection: Connection) -> None:
    """J2."""
    await submit(connection, "work", steps=NAMES)
    await connection.execute("delete from reactor.jobs")
    assert await connection.fetchval("select count(*) from reactor.steps") == 0
