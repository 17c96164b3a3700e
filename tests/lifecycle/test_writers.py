"""The task that writes what attempts leave, and reports when all of it is written."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from reactor.children import Children
from reactor.counts import Histogram
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.job import JobState
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.steps import Record, StepState
from reactor.lifecycle.writers import Writers
from reactor.outcome import Completed, Ending, Outcome
from tests.support.jobs import Row, claim, insert
from tests.support.until import until


@pytest.fixture
def settled() -> dict[int, JobState | None]:
    """The states of the jobs whose ends were reported, in their order."""
    return {}


@pytest.fixture
async def writers(database: str, settled: dict[int, JobState | None]) -> AsyncIterator[Writers]:
    def on_settled(job_id: int, _attempt_id: UUID, state: JobState | None, _outcome: Outcome) -> None:
        settled[job_id] = state

    connection = ReconnectingConnection(database, "test")
    writers = Writers(connection, on_settled, Histogram((1,)))
    running = asyncio.create_task(writers.run())
    yield writers
    running.cancel()
    await asyncio.wait([running])
    await connection.close()


async def test_a_postponed_write_whose_caller_was_cancelled_ends_with_a_report(
    database: str, connection: Connection, worker: Worker, writers: Writers
) -> None:
    """A worker that stops waits for this report, and for nothing else."""
    job = await claim(connection, worker, await insert(connection))
    reports: list[bool] = []
    writers.on_idle = lambda: reports.append(writers.is_idle)
    async with connect(database, name="operator") as operator, operator.transaction():
        await operator.execute("select from reactor.jobs where id = $1 for update", job.id)
        record = Record(job.id, job.attempt_id, "one", StepState.RUNNING, None, None)
        recording = asyncio.create_task(writers.steps.record(record))
        await until(lambda: reports == [False])
        recording.cancel()
    await until(lambda: writers.is_idle)
    await until(lambda: reports[-1])


def children(count: int) -> Children | None:
    return Children(['{"job_type": "child"}'] * count) or None


async def test_an_end_with_many_children_does_not_delay_other_ends(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None], row: Row
) -> None:
    """Its children wait for a lock that the test holds."""
    parent, other = [await claim(connection, worker, await insert(connection)) for _ in range(2)]
    await connection.execute(
        "create function public.hold() returns trigger language plpgsql as "
        "'begin perform pg_advisory_xact_lock(4711); return null; end'; "
        "create trigger hold after insert on reactor.jobs for each statement execute function public.hold()"
    )
    await connection.execute("select pg_advisory_lock(4711)")
    writers.endings.put(Ending(parent.id, parent.attempt_id, Completed(), children(1001)))
    await until(lambda: connection.fetchval("select exists (select from pg_locks where not granted)"))
    writers.endings.put(Ending(other.id, other.attempt_id, Completed()))
    await until(lambda: settled)
    assert settled == {other.id: JobState.COMPLETED}
    assert not writers.is_idle
    reports: list[bool] = []
    writers.on_idle = lambda: reports.append(writers.is_idle)
    await connection.execute("select pg_advisory_unlock(4711)")
    await until(lambda: settled.get(parent.id))
    await until(lambda: reports and reports[-1])
    assert (await row(parent.id))["children"] == 1001


async def on_children(connection: Connection, body: str) -> None:
    await connection.execute(
        "create function public.on_children() returns trigger language plpgsql as "
        f"$$ begin {body}; return null; end $$; "
        "create trigger on_children after insert on reactor.jobs "
        "for each statement execute function public.on_children()"
    )


@pytest.mark.parametrize("count", [2, 1001])
async def test_an_end_slower_than_the_servers_statement_timeout_is_written_apart_from_the_others(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None], row: Row, count: int
) -> None:
    parent, other = [await claim(connection, worker, await insert(connection)) for _ in range(2)]
    await on_children(connection, "perform pg_sleep(1.5)")
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set statement_timeout = '1s'")
    for job, chained in ((parent, count), (other, 0)):
        writers.endings.put(Ending(job.id, job.attempt_id, Completed(), children(chained)))
    await until(lambda: len(settled) == 2)
    assert settled == dict.fromkeys((other.id, parent.id), JobState.COMPLETED)
    assert (await row(parent.id))["children"] == count


async def test_an_end_whose_children_the_server_cannot_create_in_time_fails_its_job(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None], row: Row
) -> None:
    parent = await claim(connection, worker, await insert(connection))
    await on_children(connection, "raise 'canceling statement due to statement timeout' using errcode = '57014'")
    writers.endings.put(Ending(parent.id, parent.attempt_id, Completed(), children(2)))
    await until(lambda: settled)
    assert settled == {parent.id: JobState.FAILED}
    error = (await row(parent.id))["error"]
    assert "cancelled the creation of the 2 chained jobs 3 times" in error
    assert "Chain jobs that each chain a part of them" in error


async def test_the_row_of_an_ended_job_may_be_locked_for_a_while(
    database: str, connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None]
) -> None:
    """The other ends are written meanwhile."""
    locked, other = [await claim(connection, worker, await insert(connection)) for _ in range(2)]
    async with connect(database, name="operator") as operator, operator.transaction():
        await operator.execute("select from reactor.jobs where id = $1 for update", locked.id)
        for job in (locked, other):
            writers.endings.put(Ending(job.id, job.attempt_id, Completed()))
        await until(lambda: settled)
        assert settled == {other.id: JobState.COMPLETED}
    await until(lambda: len(settled) == 2)
    assert settled[locked.id] is JobState.COMPLETED


async def test_an_end_with_too_many_children_fails_and_says_what_to_do(
    connection: Connection, worker: Worker, writers: Writers, settled: dict[int, JobState | None], row: Row
) -> None:
    parent = await claim(connection, worker, await insert(connection))
    writers.endings.put(Ending(parent.id, parent.attempt_id, Completed(), children(100_001)))
    await until(lambda: settled)
    assert settled == {parent.id: JobState.FAILED}
    error = (await row(parent.id))["error"]
    assert f"job {parent.id} can't chain 100001 jobs at once" in error
    assert "Chain jobs that each chain a part of them" in error
    assert await connection.fetchval("select count(*) from reactor.jobs") == 1
