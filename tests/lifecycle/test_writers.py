"""The task that writes what attempts leave, and reports when all of it is written."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reactor.counts import Histogram
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.steps import Record, StepState
from reactor.lifecycle.writers import Writers
from tests.support.jobs import claim, insert
from tests.support.until import until


@pytest.fixture
async def writers(database: str) -> AsyncIterator[Writers]:
    connection = ReconnectingConnection(database, "test")
    writers = Writers(connection, lambda *_: None, Histogram((1,)))
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
