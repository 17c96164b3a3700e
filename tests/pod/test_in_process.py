"""The reactor inside an application's own process."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from reactor import Context, Job, Reactor, Registry, run_job
from reactor.database.connection import Connection, connect
from reactor.errors import AppInvalid, DatabaseReadOnly, DatabaseUnreachable, SettingsInvalid
from tests.support.jobs import Row, has_ended, insert
from tests.support.until import until


@pytest.fixture
def started(database: str, registry: Registry) -> list[int]:
    """The jobs whose handlers have started: `work` ends at once, `wait` only on request, `block` after two
    heartbeats."""
    started: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        started.append(job.id)

    @registry.register("wait")
    async def wait(job: Job, ctx: Context) -> None:
        started.append(job.id)
        await asyncio.Event().wait()

    @registry.register("block", max_attempts=1)
    async def block(job: Job) -> None:
        started.append(job.id)
        with ThreadPoolExecutor(1) as executor:
            executor.submit(asyncio.run, _two_heartbeats(database)).result()

    return started


async def _two_heartbeats(database: str) -> None:
    async with connect(database, name="test") as connection:
        beats: set[Any] = set()

        async def have_come() -> bool:
            beats.add(await connection.fetchval("select heartbeat_at from reactor.workers"))
            return len(beats) == 3

        await until(have_come)


async def test_jobs_that_still_run_when_the_block_is_left_are_released(
    database: str, connection: Connection, registry: Registry, started: list[int], row: Row
) -> None:
    async with Reactor(database, registry=registry, grace_seconds=0):
        job_id = await insert(connection, "wait")
        await until(lambda: started)
    released = await row(job_id)
    assert (released["state"], released["attempts"], released["worker_id"]) == ("pending", 0, None)
    assert await connection.fetchval("select count(*) from reactor.workers where ended_at is null") == 0


async def test_a_blocked_event_loop_does_not_cost_the_lease(
    database: str, connection: Connection, registry: Registry, started: list[int], row: Row
) -> None:
    """Another thread renews it."""
    async with Reactor(database, registry=registry, heartbeat_seconds=0.2):
        job_id = await insert(connection, "block")
        await until(lambda: has_ended(row, job_id))
    assert ((await row(job_id))["state"], (await row(job_id))["error"]) == ("completed", None)
    assert await connection.fetchval("select count(*) from reactor.workers") == 1


async def test_a_lost_lease_is_the_end_of_a_worker_and_not_of_the_application(
    database: str, connection: Connection, registry: Registry, started: list[int]
) -> None:
    """Its jobs are stopped, and another worker of the same application runs them again."""
    async with Reactor(database, registry=registry, heartbeat_seconds=0.2, grace_seconds=0):
        job_id = await insert(connection, "wait")
        await until(lambda: started == [job_id])
        await connection.execute("update reactor.workers set ended_at = now()")
        await until(lambda: started == [job_id, job_id])
        assert await connection.fetchval("select count(*) from reactor.workers") == 2


async def test_run_job_runs_only_what_it_can_claim(
    database: str, connection: Connection, registry: Registry, started: list[int], row: Row
) -> None:
    """D2, P3: a job that can't be claimed is not run, and not changed."""

    @registry.lifespan
    async def take_a_while() -> AsyncIterator[None]:
        await asyncio.sleep(0.3)  # longer than it takes to call run_job
        yield

    job_id = await insert(connection)
    async with Reactor(database, registry=registry, queues=["elsewhere"], poll_seconds=0) as reactor:
        assert await run_job(reactor, job_id) == "completed", "also when it is asked for before the reactor is ready"
        before = await row(job_id)
        assert await reactor.run_job(job_id) is None
        assert await row(job_id) == before
        stranger = await insert(connection, "stranger")
        before = await row(stranger)
        assert await reactor.run_job(stranger) is None
        assert await row(stranger) == before
        assert await reactor.run_job(10**9) is None
    assert started == [job_id]


async def test_a_reactor_runs_in_an_asgi_lifespan(
    database: str, connection: Connection, registry: Registry, started: list[int]
) -> None:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Reactor(database, registry=registry):
            yield

    app = Starlette(lifespan=lifespan)
    async with app.router.lifespan_context(app):
        job_id = await insert(connection)
        await until(lambda: started == [job_id])


async def test_invalid_arguments_of_a_reactor_are_reported(
    database: str, registry: Registry, started: list[int]
) -> None:
    with pytest.raises(SettingsInvalid, match="REACTOR_DATABASE_URL"):
        Reactor()
    with pytest.raises(SettingsInvalid, match="half"):
        Reactor(database, lease_seconds=10, heartbeat_seconds=9)
    with pytest.raises(AppInvalid, match="no handler"):
        async with Reactor(database, registry=Registry()):
            pass
    with pytest.raises(DatabaseReadOnly, match="primary"):
        async with Reactor(f"{database}&default_transaction_read_only=on", registry=registry):
            pass
    with pytest.raises(DatabaseUnreachable):
        async with Reactor("postgresql://nobody@127.0.0.1:1/x", registry=registry):
            pass


async def test_a_reactor_leaves_no_task_or_file_open(
    database: str, connection: Connection, registry: Registry, started: list[int]
) -> None:
    """After a hundred bursts in one reactor, and after several reactors."""

    def open_files() -> int:
        return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))

    async def burst(reactor: Reactor) -> None:
        done = len(started)
        await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 10)")
        await until(lambda: len(started) == done + 10)

    async def all_sessions_are_open() -> bool:
        found: int = await connection.fetchval(
            "select count(distinct split_part(application_name, ' ', 2)) from pg_stat_activity where datname = "
            "current_database() and application_name ~ '^reactor (claim|heartbeat|listen|settle|sweep) '"
        )
        return found == 5

    # The heartbeat's session is opened with the second beat.
    async with Reactor(database, registry=registry, heartbeat_seconds=1) as reactor:
        for _ in range(5):
            await burst(reactor)
        await until(lambda: reactor.is_well and reactor.counts.ended == len(started))
        await until(all_sessions_are_open)
        tasks, files = len(asyncio.all_tasks()), open_files()
        for _ in range(100):
            await burst(reactor)
        await until(lambda: len(asyncio.all_tasks()) <= tasks and open_files() <= files)
    tasks, files = len(asyncio.all_tasks()), open_files()
    for _ in range(5):
        async with Reactor(database, registry=registry) as reactor:
            await burst(reactor)
    # Some that were being closed may have been counted before: fewer are fine.
    await until(lambda: len(asyncio.all_tasks()) <= tasks and open_files() <= files)


async def test_a_reactor_can_be_left_before_it_has_started(database: str) -> None:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    @registry.lifespan
    async def slow() -> Any:
        await asyncio.sleep(0.3)  # longer than the block below takes
        yield None

    async with Reactor(database, registry=registry, grace_seconds=0):
        pass
