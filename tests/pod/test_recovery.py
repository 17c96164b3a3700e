"""What becomes of a worker's jobs after it has ended, by what each of them had come to."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.pod.recovery import after_crash, after_shutdown, into_quarantine

Row = Callable[[int], Awaitable[dict[str, Any]]]


async def claimed(connection: Connection, worker: Worker, count: int) -> dict[int, Any]:
    await connection.execute(
        "insert into reactor.jobs (job_type) select 'work' from generate_series(1, $1::int)", count
    )
    return {job.id: job.attempt_id for job in await claim(connection, worker, count)}


async def history(connection: Connection) -> list[tuple[int, str]]:
    rows = await connection.fetch("select job_id, outcome from reactor.attempts order by 1, ended_at")
    return [(row["job_id"], row["outcome"]) for row in rows]


async def test_what_had_not_begun_goes_back_as_if_nothing_had_been(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """However often: only what ran is bounded in its free releases."""
    for _ in range(12):
        [job_id] = await claimed(connection, worker, 1) or [0]
        assert await after_shutdown(connection, worker.id, (), fail=True) == 0
        await connection.execute("update reactor.workers set ended_at = null")
        before = await row(job_id)
        assert (before["state"], before["attempts"], before["started_at"]) == ("pending", 0, None)
        await connection.execute("delete from reactor.jobs")
    assert await history(connection) == []


async def test_after_a_shutdown_what_ran_is_released_or_failed(
    connection: Connection, worker: Worker, row: Row
) -> None:
    held = await claimed(connection, worker, 3)
    first, *_ = held
    assert await after_shutdown(connection, worker.id, [held[first]], fail=False) == 1
    assert [(await row(job_id))["state"] for job_id in held] == ["pending"] * 3
    assert await history(connection) == [(first, "released")]
    assert await connection.fetchval("select ended_at is not null from reactor.workers")


async def test_after_a_crash_nobody_pays_the_first_time(connection: Connection, worker: Worker, row: Row) -> None:
    held = await claimed(connection, worker, 2)
    ran, _ = held
    assert await after_crash(connection, worker.id, [held[ran]], {}, "it died") == {}
    assert [((await row(n))["state"], (await row(n))["attempts"]) for n in held] == [("pending", 0)] * 2
    assert await history(connection) == [(ran, "crashed")]


async def test_who_ran_in_two_crashes_is_a_suspect_and_stays_held(
    connection: Connection, worker: Worker, row: Row
) -> None:
    [(job_id, first)] = (await claimed(connection, worker, 1)).items()
    assert await after_crash(connection, worker.id, [first], {}, "it died") == {}
    [again] = await claim(connection, worker, 1)
    suspects = await after_crash(connection, worker.id, [again.attempt_id], {}, "it died")
    assert suspects == {job_id: again.attempt_id}
    assert (await row(job_id))["state"] == "running"


async def test_who_blocked_its_process_pays(connection: Connection, worker: Worker, row: Row) -> None:
    held = await claimed(connection, worker, 2)
    blocking, _ = held
    await after_crash(connection, worker.id, held.values(), {held[blocking]: "It blocked."}, "it was ended")
    assert [(await row(n))["attempts"] for n in held] == [1, 0]
    assert "blocked" in (await row(blocking))["error"]


async def test_the_quarantine_takes_over_what_is_still_the_dead_attempts(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """F5: under a new fence, at no cost; what is not that attempt's any more is left alone."""
    held = await claimed(connection, worker, 2)
    mine, taken = held
    await connection.execute("update reactor.jobs set attempt_id = $2 where id = $1", taken, uuid4())
    before = await row(taken)
    ward = Worker("pod-1", {"work": None})
    assert await into_quarantine(connection, ward, 60, held, "it died", charged=False)
    after = await row(mine)
    assert (after["worker_id"], after["attempts"], after["state"]) == (ward.id, 1, "running")
    assert after["attempt_id"] not in held.values()
    assert await row(taken) == before
    assert await history(connection) == [(mine, "crashed")]


async def test_a_killer_pays_for_each_deed_and_fails_with_the_last(
    connection: Connection, worker: Worker, row: Row
) -> None:
    held = await claimed(connection, worker, 1)
    [job_id] = held
    for paid in (2, 3):
        ward = Worker("pod-1", {"work": None})
        assert await into_quarantine(connection, ward, 60, held, "It killed.", charged=True)
        held = {job_id: (await row(job_id))["attempt_id"]}
        assert (await row(job_id))["attempts"] == paid
    assert not await into_quarantine(connection, Worker("pod-1", {}), 60, held, "It killed.", charged=True)
    failed = await row(job_id)
    assert (failed["state"], failed["attempts"]) == ("failed", 3)
    assert "no attempt left" in failed["error"]
