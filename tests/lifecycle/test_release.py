"""Release of the jobs of a worker that ended: unstarted jobs, started jobs, and the one that killed it."""

import asyncio

import pytest

from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.release import after_crash, after_shutdown
from tests.support.jobs import Row, claimed, has_state, history
from tests.support.until import until


async def test_unstarted_jobs_are_released_without_a_trace(connection: Connection, worker: Worker, row: Row) -> None:
    """Any number of times: only free releases of started jobs are limited."""
    for _ in range(12):
        [job_id] = await claimed(connection, worker, 1) or [0]
        assert await after_shutdown(connection, worker.id, (), fail=True) == 0
        await connection.execute("update reactor.workers set ended_at = null")
        before = await row(job_id)
        assert (before["state"], before["attempts"], before["started_at"]) == ("pending", 0, None)
        await connection.execute("delete from reactor.jobs")
    assert await history(connection) == []


async def test_after_a_shutdown_running_jobs_are_released_or_failed(
    connection: Connection, worker: Worker, row: Row
) -> None:
    held = await claimed(connection, worker, 3)
    first, *_ = held
    assert await after_shutdown(connection, worker.id, [held[first]], fail=False) == 1
    assert [(await row(job_id))["state"] for job_id in held] == ["pending"] * 3
    assert await history(connection) == [(first, "released")]
    assert await connection.fetchval("select ended_at is not null from reactor.workers")


@pytest.mark.parametrize("by", ["a crash", "a shutdown"])
async def test_a_job_that_is_locked_does_not_keep_the_others_waiting(
    database: str, connection: Connection, worker: Worker, row: Row, by: str
) -> None:
    held = await claimed(connection, worker, 4)
    unstarted, *started = held
    attempts = [held[job_id] for job_id in started]
    async with connect(database, name="pod") as pod, connect(database, name="operator") as operator:
        async with operator.transaction():
            await operator.execute("select from reactor.jobs where id = any ($1) for update", [unstarted, started[0]])
            releasing = asyncio.create_task(
                after_crash(pod, worker.id, attempts, {attempts[-1]: "It blocked."}, "it died")
                if by == "a crash"
                else after_shutdown(pod, worker.id, attempts, fail=False)
            )
            for job_id in started[1:]:
                await until(lambda job_id=job_id: has_state(row, job_id, "pending"))
            assert not releasing.done()
            assert await connection.fetchval("select ended_at is null from reactor.workers")
        assert await releasing == ({} if by == "a crash" else 3)
    assert {(await row(job_id))["state"] for job_id in held} == {"pending"}
    assert (await row(unstarted))["attempts"] == 0
    assert len(await history(connection)) == 3


async def test_no_job_is_charged_for_the_first_crash(connection: Connection, worker: Worker, row: Row) -> None:
    held = await claimed(connection, worker, 2)
    ran, _ = held
    assert await after_crash(connection, worker.id, [held[ran]], {}, "it died") == {}
    assert [((await row(n))["state"], (await row(n))["attempts"]) for n in held] == [("pending", 0)] * 2
    assert await history(connection) == [(ran, "crashed")]


async def test_a_job_that_ran_in_two_crashes_is_a_suspect_and_stays_held(
    connection: Connection, worker: Worker, row: Row
) -> None:
    [(job_id, first)] = (await claimed(connection, worker, 1)).items()
    assert await after_crash(connection, worker.id, [first], {}, "it died") == {}
    [again] = await claim(connection, worker, 1)
    suspects = await after_crash(connection, worker.id, [again.attempt_id], {}, "it died")
    assert suspects == {job_id: again.attempt_id}
    assert (await row(job_id))["state"] == "running"


async def test_a_job_that_blocked_its_process_is_charged(connection: Connection, worker: Worker, row: Row) -> None:
    held = await claimed(connection, worker, 2)
    blocking, _ = held
    await after_crash(connection, worker.id, held.values(), {held[blocking]: "It blocked."}, "it was ended")
    assert [(await row(n))["attempts"] for n in held] == [1, 0]
    assert "blocked" in (await row(blocking))["error"]
