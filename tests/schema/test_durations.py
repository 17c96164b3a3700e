"""How long jobs waited, queued and ran: per attempt and in sum, from what each transition stores."""

import json
from typing import Any

import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Released, Snoozed
from reactor.queries.jobs import find_job, list_jobs
from tests.support.jobs import claim, insert, run

NOTHING = {"waited": 0.0, "queued": 0.0, "ran": 0.0, "total": 0.0}


async def durations(connection: Connection, job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = (await find_job(connection, job_id))["durations"]
    return found


async def age(connection: Connection, job_id: int, seconds: float) -> None:
    """As if all that has happened to the job had happened this much earlier."""
    times = ("created_at", "requeued_at", "ready_at", "run_after", "locked_at", "started_at", "finished_at")
    earlier = ", ".join(f"{name} = {name} - make_interval(secs => $2)" for name in times)
    await connection.execute(f"update reactor.jobs set {earlier} where id = $1", job_id, seconds)
    await connection.execute(
        "update reactor.attempts set started_at = started_at - make_interval(secs => $2),"
        " ended_at = ended_at - make_interval(secs => $2) where job_id = $1",
        job_id,
        seconds,
    )


def rounded(found: dict[str, Any]) -> dict[str, int]:
    """To tens of seconds: a test may take a few."""
    return {name: round(value / 10) * 10 for name, value in found.items() if name != "attempt"}


async def test_a_job_queues_until_it_is_claimed_and_then_runs(connection: Connection, worker: Worker) -> None:
    """J18: in every answer about it, also while it has not ended."""
    job_id = await insert(connection)
    await age(connection, job_id, 100)
    assert rounded(await durations(connection, job_id)) == {"waited": 0, "queued": 100, "ran": 0, "total": 100}
    job = await claim(connection, worker, job_id)
    await age(connection, job_id, 50)
    assert rounded(await durations(connection, job_id)) == {"waited": 0, "queued": 100, "ran": 50, "total": 150}
    await settle(connection, [Ending(job_id, job.attempt_id, Completed())])
    await age(connection, job_id, 500)
    found = await durations(connection, job_id)
    assert rounded(found) == {"waited": 0, "queued": 100, "ran": 50, "total": 150}
    assert found == {**found["attempt"], "attempt": found["attempt"]}
    row = await connection.fetchrow(
        "select extract(epoch from locked_at - created_at)::float8 as queued,"
        " extract(epoch from finished_at - locked_at)::float8 as ran,"
        " extract(epoch from finished_at - created_at)::float8 as total from reactor.jobs"
    )
    assert row
    assert found["attempt"] == {"waited": 0.0, **row}
    listed = (await list_jobs(connection)).jobs[0]
    assert listed["durations"] == found


async def test_a_job_waits_until_its_run_after(connection: Connection, worker: Worker) -> None:
    await connection.execute(
        "insert into reactor.jobs (job_type, run_after) values ('work', clock_timestamp() + interval '100 seconds')"
    )
    await age(connection, 1, 40)
    assert rounded(await durations(connection, 1)) == {"waited": 40, "queued": 0, "ran": 0, "total": 40}
    await age(connection, 1, 80)
    assert rounded(await durations(connection, 1)) == {"waited": 100, "queued": 20, "ran": 0, "total": 120}
    await connection.fetch(statements.PROMOTE_DUE, 10)
    await age(connection, 1, 30)
    await claim(connection, worker, 1)
    assert rounded(await durations(connection, 1)) == {"waited": 100, "queued": 50, "ran": 0, "total": 150}


async def test_a_job_waits_for_its_dependencies(connection: Connection, worker: Worker) -> None:
    first = await insert(connection)
    second = await insert(connection, after=[first])
    await age(connection, second, 100)
    assert rounded(await durations(connection, second)) == {"waited": 100, "queued": 0, "ran": 0, "total": 100}
    await run(connection, worker, first, Completed())
    await age(connection, second, 50)
    assert rounded(await durations(connection, second)) == {"waited": 100, "queued": 50, "ran": 0, "total": 150}


async def test_a_job_that_a_failed_dependency_cancels_has_only_waited(connection: Connection, worker: Worker) -> None:
    first = await insert(connection)
    second = await insert(connection, after=[first])
    await age(connection, second, 100)
    await run(connection, worker, first, Failed("no"))
    assert rounded(await durations(connection, second)) == {"waited": 100, "queued": 0, "ran": 0, "total": 100}


@pytest.mark.parametrize(
    ("outcome", "delay"),
    [(Errored("no", 300), 300), (Snoozed(300), 300), (Released("stopped", 300), 300), (Errored("no", 0), 0)],
    ids=["error", "snooze", "release", "error without delay"],
)
async def test_attempts_have_their_own_durations_and_the_job_their_sums(
    connection: Connection, worker: Worker, outcome: Outcome, delay: int
) -> None:
    """J18: the first attempt queues for 100 s and runs for 50; the second waits for its backoff, queues for 20 and runs
    for 10."""
    job_id = await insert(connection)
    await age(connection, job_id, 100)
    job = await claim(connection, worker, job_id)
    await age(connection, job_id, 50)
    await settle(connection, [Ending(job_id, job.attempt_id, outcome)])
    await age(connection, job_id, delay + 20)
    assert rounded(await durations(connection, job_id)) == {
        "waited": delay,
        "queued": 120,
        "ran": 50,
        "total": delay + 170,
    }
    job = await claim(connection, worker, job_id)
    await age(connection, job_id, 10)
    await settle(connection, [Ending(job_id, job.attempt_id, Completed())])
    found = await find_job(connection, job_id)
    assert rounded(found["durations"]) == {"waited": delay, "queued": 120, "ran": 60, "total": delay + 180}
    assert rounded(found["durations"]["attempt"]) == {"waited": delay, "queued": 20, "ran": 10, "total": delay + 30}
    (earlier,) = found["earlier_attempts"]
    assert rounded(earlier["durations"]) == {"waited": 0, "queued": 100, "ran": 50, "total": 150}


async def test_a_claim_that_was_never_started_counts_as_time_in_the_queue(
    connection: Connection, worker: Worker
) -> None:
    job = await claim(connection, worker, await insert(connection))
    await age(connection, job.id, 100)
    await connection.fetch(
        statements.SETTLE, [job.id], [job.attempt_id], ["unstarted"], None, None, None, None, None, None
    )
    assert rounded(await durations(connection, job.id)) == {"waited": 0, "queued": 100, "ran": 0, "total": 100}
    assert (await find_job(connection, job.id))["earlier_attempts"] == []


async def test_a_job_that_is_cancelled_while_it_runs_has_run(connection: Connection, worker: Worker) -> None:
    job_id = await insert(connection)
    await age(connection, job_id, 100)
    await claim(connection, worker, job_id)
    await age(connection, job_id, 50)
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
    await age(connection, job_id, 500)
    found = await durations(connection, job_id)
    assert rounded(found) == {"waited": 0, "queued": 100, "ran": 50, "total": 150}
    assert rounded(found["attempt"]) == NOTHING


async def test_a_scheduled_job_that_is_cancelled_has_only_waited(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('work', 'infinity')")
    await age(connection, 1, 100)
    await connection.execute("select from reactor.cancel(array[1], 'by hand')")
    assert rounded(await durations(connection, 1)) == {"waited": 100, "queued": 0, "ran": 0, "total": 100}


async def test_the_time_between_the_end_of_a_job_and_its_retry_counts_as_nothing(
    connection: Connection, worker: Worker
) -> None:
    job_id = await insert(connection)
    job = await claim(connection, worker, job_id)
    await age(connection, job_id, 50)
    await settle(connection, [Ending(job_id, job.attempt_id, Failed("no"))])
    await age(connection, job_id, 1000)
    await connection.execute("select from reactor.retry(array[$1::bigint])", job_id)
    await age(connection, job_id, 20)
    assert rounded(await durations(connection, job_id)) == {"waited": 0, "queued": 20, "ran": 50, "total": 70}
    await run(connection, worker, job_id, Completed())
    assert rounded(await durations(connection, job_id)) == {"waited": 0, "queued": 20, "ran": 50, "total": 70}


async def test_a_job_that_is_handed_over_begins_a_new_attempt(connection: Connection, worker: Worker) -> None:
    """Jobs of a process that died run again in a process of their own, without another claim."""
    job = await claim(connection, worker, await insert(connection))
    await age(connection, job.id, 50)
    await connection.fetch(statements.HAND_OVER, [job.id], [job.attempt_id], worker.id, "died", False)
    await age(connection, job.id, 10)
    found = await durations(connection, job.id)
    assert rounded(found) == {"waited": 0, "queued": 0, "ran": 60, "total": 60}
    assert rounded(found["attempt"]) == {"waited": 0, "queued": 0, "ran": 10, "total": 10}


async def test_a_clock_that_was_set_back_makes_no_duration_negative(connection: Connection, worker: Worker) -> None:
    job = await claim(connection, worker, await insert(connection))
    await connection.execute("update reactor.jobs set created_at = created_at + interval '1 hour'")
    found = await durations(connection, job.id)
    assert all(value >= 0 for value in found["attempt"].values()), found
    await settle(connection, [Ending(job.id, job.attempt_id, Errored("no"))])
    stored = await connection.fetchrow("select waited_seconds, queued_seconds from reactor.attempts")
    assert stored
    assert tuple(stored) == (0, 0)


async def test_a_producer_cant_choose_when_its_job_became_ready(connection: Connection) -> None:
    """Nor what else durations and counts are made of."""
    await connection.execute("set role reactor_producer")
    await connection.execute(
        "insert into reactor.jobs (job_type, ready_at, requeued_at, step_counts)"
        " values ('work', '2020-01-01', '2020-01-01', '{}')"
    )
    await connection.execute("reset role")
    row = await connection.fetchrow("select ready_at, requeued_at, step_counts from reactor.jobs")
    assert row
    assert tuple(row) == (None, None, None)


async def test_the_version_of_an_answer_does_not_change_with_time(connection: Connection) -> None:
    """A client that asks again for an unfinished job is answered with 304 (Not Modified)."""
    await insert(connection)
    first = await connection.fetchrow(statements.FIND_JOB, 1)
    second = await connection.fetchrow(statements.FIND_JOB, 1)
    assert first
    assert second
    assert json.loads(first["durations"])["total"] < json.loads(second["durations"])["total"]
    assert first["version"] == second["version"]
    await connection.execute("update reactor.jobs set progress = 0.5")
    third = await connection.fetchrow(statements.FIND_JOB, 1)
    assert third
    assert third["version"] != first["version"]
