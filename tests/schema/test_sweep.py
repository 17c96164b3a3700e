"""When a worker whose lease is over is considered dead."""

from uuid import UUID

import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.job import Job
from reactor.lifecycle.lease import Worker, heartbeat, register_worker
from tests.support.jobs import Row, claim, insert

LEASE_SECONDS = 60


async def age(connection: Connection, *workers: UUID, seconds: float) -> None:
    """As if their last heartbeats were that old."""
    await connection.execute(
        "update reactor.workers set heartbeat_at = heartbeat_at - $2 * interval '1 s', "
        "lease_until = lease_until - $2 * interval '1 s', contact_since = contact_since - $2 * interval '1 s' "
        "where id = any ($1)",
        workers,
        seconds,
    )


async def pods(connection: Connection) -> tuple[Worker, Worker]:
    first, second = Worker("pod-1", {"work": None}), Worker("pod-2", {"work": None})
    for worker in (first, second):
        await register_worker(connection, worker, LEASE_SECONDS)
    return first, second


async def running(connection: Connection, worker: Worker) -> Job:
    return await claim(connection, worker, await insert(connection))


async def in_contact_seconds(connection: Connection, worker: Worker) -> float:
    return float(
        await connection.fetchval(
            "select extract(epoch from clock_timestamp() - contact_since) from reactor.workers where id = $1", worker.id
        )
    )


async def sweep(connection: Connection) -> list[int]:
    return [record["id"] for record in await connection.fetch(statements.SWEEP, 10)]


async def test_after_an_outage_a_sweeper_waits_for_living_workers(connection: Connection, row: Row) -> None:
    """All leases are over, because no worker could reach the database. The first one that returns must not take the
    jobs of the others."""
    first, second = await pods(connection)
    job = await running(connection, first)
    await age(connection, first.id, second.id, seconds=LEASE_SECONDS + 30)
    assert await sweep(connection) == [], "nobody was in contact"
    assert await heartbeat(connection, second.id, LEASE_SECONDS), "a lease that nobody took can be renewed"
    assert await in_contact_seconds(connection, second) < LEASE_SECONDS / 3
    assert await sweep(connection) == [], "the other one may be about to return"
    assert await heartbeat(connection, first.id, LEASE_SECONDS)
    assert (await row(job.id))["state"] == "running"


async def test_a_worker_that_does_not_return_after_an_outage_is_dead(connection: Connection, row: Row) -> None:
    first, second = await pods(connection)
    job = await running(connection, first)
    await age(connection, first.id, second.id, seconds=LEASE_SECONDS + 30)
    assert await heartbeat(connection, second.id, LEASE_SECONDS)
    await age(connection, second.id, seconds=LEASE_SECONDS / 3 + 1)
    assert await heartbeat(connection, second.id, LEASE_SECONDS)
    assert await sweep(connection) == [job.id]
    assert (await row(job.id))["state"] == "pending"
    assert not await heartbeat(connection, first.id, LEASE_SECONDS), "its jobs belong to others now"


async def test_a_worker_that_alone_is_silent_is_dead_when_its_lease_ends(connection: Connection) -> None:
    """Another one was in contact all the time. So was one that has just started, in the place of one that was."""
    first, second = await pods(connection)
    job = await running(connection, first)
    await age(connection, first.id, second.id, seconds=20)
    assert await heartbeat(connection, second.id, LEASE_SECONDS)
    assert await in_contact_seconds(connection, second) >= 20
    await connection.execute(statements.RETIRE_WORKER, second.id, None)
    third = Worker("pod-2", {"work": None})
    await register_worker(connection, third, LEASE_SECONDS)
    assert await in_contact_seconds(connection, third) >= 20
    await connection.execute("delete from reactor.workers where id = $1", second.id)
    assert await sweep(connection) == []
    await age(connection, first.id, seconds=41)
    assert await sweep(connection) == [job.id]


async def test_contact_is_never_in_the_future(connection: Connection) -> None:
    """The server's clock was set back: dead workers must not wait until it is as late again."""
    first, _ = await pods(connection)
    await age(connection, first.id, seconds=-3600)
    assert await heartbeat(connection, first.id, LEASE_SECONDS)
    assert await in_contact_seconds(connection, first) >= 0


@pytest.mark.parametrize("seconds_in_contact", [0.0, 100.0])
async def test_a_sweeper_wakes_when_the_next_lease_can_be_found_lost(
    connection: Connection, seconds_in_contact: float
) -> None:
    first, second = await pods(connection)
    await age(connection, first.id, seconds=LEASE_SECONDS - 5)
    await connection.execute(
        "update reactor.workers set contact_since = clock_timestamp() - $2 * interval '1 s' where id = $1",
        second.id,
        seconds_in_contact,
    )
    seconds = await connection.fetchval(statements.NEXT_LEASE)
    assert seconds == pytest.approx(5 if seconds_in_contact else LEASE_SECONDS / 3, abs=4)


async def test_recover_ends_only_the_worker_of_its_job(connection: Connection) -> None:
    """An operator may know that one worker is dead, and does not decide that all silent ones are."""
    first, second = await pods(connection)
    job = await running(connection, first)
    await running(connection, second)
    await age(connection, first.id, second.id, seconds=LEASE_SECONDS + 30)
    assert [r["id"] for r in await connection.fetch(statements.RECOVER, job.id)] == [job.id]
    ended = await connection.fetch("select id from reactor.workers where ended_at is not null")
    assert [record["id"] for record in ended] == [first.id]
