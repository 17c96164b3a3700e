"""Suspects of crashes run alone, and the culprit is charged."""

from uuid import uuid4

from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from reactor.pod.quarantine import hand_over
from tests.support.jobs import Row, claimed, history


async def test_the_quarantine_takes_over_the_jobs_of_dead_attempts(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """F5: with a new attempt_id, not charged. Jobs that other attempts hold are not changed."""
    held = await claimed(connection, worker, 2)
    mine, taken = held
    await connection.execute("update reactor.jobs set attempt_id = $2 where id = $1", taken, uuid4())
    before = await row(taken)
    worker_of_one = Worker("pod-1", {"work": None})
    assert await hand_over(connection, worker_of_one, 60, held, "it died", charged=False)
    after = await row(mine)
    assert (after["worker_id"], after["attempts"], after["state"]) == (worker_of_one.id, 1, "running")
    assert after["attempt_id"] not in held.values()
    assert await row(taken) == before
    assert await history(connection) == [(mine, "crashed")]


async def test_a_culprit_is_charged_for_each_crash_until_it_fails(
    connection: Connection, worker: Worker, row: Row
) -> None:
    held = await claimed(connection, worker, 1)
    [job_id] = held
    for charged in (2, 3):
        worker_of_one = Worker("pod-1", {"work": None})
        assert await hand_over(connection, worker_of_one, 60, held, "It killed.", charged=True)
        held = {job_id: (await row(job_id))["attempt_id"]}
        assert (await row(job_id))["attempts"] == charged
    assert not await hand_over(connection, Worker("pod-1", {}), 60, held, "It killed.", charged=True)
    failed = await row(job_id)
    assert (failed["state"], failed["attempts"]) == ("failed", 3)
    assert "no attempt left" in failed["error"]
