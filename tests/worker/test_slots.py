"""Slots are freed however an attempt ends: lost, stopped twice, abandoned, or by an unusual exception."""

import asyncio
import threading
from typing import Any

from reactor import Context, Job, Registry, SyncContext
from reactor.database.connection import Connection
from reactor.pod.in_process import Reactor
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.running_attempts import RunningAttempts
from tests.support.claim_loops import Running, register
from tests.support.jobs import Row, has_ended, has_state, hold_back_completions, insert
from tests.support.until import until


async def cancel(connection: Connection, job_id: int) -> None:
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)


async def test_a_handler_stopped_again_during_its_rollback_frees_its_slot(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """Its job runs again."""
    loop: ClaimLoop

    @registry.register("work", timeout_seconds=0.3, backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        if job.attempts > 1:
            return
        async with ctx.transaction():
            pass
        try:
            await asyncio.sleep(60)
        finally:
            asyncio.get_running_loop().call_soon(loop.slots.interrupt)

    async with running(concurrency=1) as loop:
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "completed"))


async def test_an_attempt_that_loses_its_job_before_it_starts_frees_its_slot_and_scope(
    connection: Connection, registry: Registry, running: Running
) -> None:
    @registry.register("work")
    async def work(job: Job) -> None: ...

    async with running(concurrency=1) as loop:
        take = loop.slots.take

        def take_and_lose(jobs: list[Job]) -> None:
            take(jobs)
            if jobs:
                loop.slots.take = take  # type: ignore[method-assign]
                loop.slots.lose({job.attempt_id for job in jobs})

        loop.slots.take = take_and_lose  # type: ignore[method-assign,assignment]
        await insert(connection)
        await until(lambda: loop.counts.stale == 1)
        assert loop.slots.free == 1


async def test_a_cancelled_job_that_had_not_started_frees_its_scope(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """It was claimed ahead, and waited for a slot."""
    let_go = asyncio.Event()

    @registry.register("work")
    async def work(job: Job) -> None:
        await let_go.wait()

    @registry.register("quick")
    async def quick(job: Job) -> None: ...

    # The timed reconciliation would repair it too.
    async with running(concurrency=1, reconcile_seconds=3600) as loop:
        loop.claim_ahead.ahead = lambda: 5  # type: ignore[method-assign]
        async with connection.transaction():
            await insert(connection)
            waits = await insert(connection, scope="s")
        await until(lambda: loop.slots.waiting == 1)
        await cancel(connection, waits)
        await until(lambda: not loop.slots.waiting)
        let_go.set()
        next_one = await insert(connection, "quick", scope="s")
        await until(lambda: has_state(row, next_one, "completed"))


async def test_any_exception_or_return_value_of_a_handler_ends_its_attempt(
    database: str, connection: Connection, row: Row
) -> None:
    """Other attempts are not affected."""
    from reactor import Partial

    registry = Registry()

    class Strange(BaseException):
        pass

    @registry.register("strange", max_attempts=1)
    async def strange(job: Job) -> None:
        raise Strange("odd")

    @registry.register("stop_iteration", max_attempts=1)
    def stop_iteration(job: Job) -> None:
        next(iter(()))

    @registry.register("strange_thread", max_attempts=1)
    def strange_thread(job: Job) -> None:
        raise Strange("odd")

    @registry.register("message", max_attempts=1)
    async def message(job: Job) -> Any:
        return Partial({}, ValueError("not a text"))  # type: ignore[arg-type]

    neighbour_may_end = asyncio.Event()

    @registry.register("neighbour")
    async def neighbour(job: Job) -> None:
        await neighbour_may_end.wait()

    async with Reactor(database, registry=registry, grace_seconds=0):
        beside = await insert(connection, "neighbour")
        for kind in ("strange", "stop_iteration", "strange_thread", "message"):
            job_id = await insert(connection, kind)
            try:
                await until(lambda job_id=job_id: has_ended(row, job_id))
            except AssertionError as error:
                raise AssertionError(kind) from error
        neighbour_may_end.set()
        await until(lambda: has_ended(row, beside))
        assert (await row(beside))["attempts"] == 1


async def test_a_worker_with_an_abandoned_handler_ends_when_that_is_written(
    database: str, connection: Connection, row: Row, registry: Registry
) -> None:
    let_go = threading.Event()

    @registry.register("work", timeout_seconds=0.1, max_attempts=1)
    def work(job: Job, ctx: SyncContext) -> None:
        let_go.wait()

    # The timed reconciliation would end it too.
    loop = await register(database, registry, concurrency=1, reconcile_seconds=3600)
    loop.on_stuck = loop.stop
    job_id = await insert(connection)
    try:
        async with asyncio.timeout(20):
            await loop.run()
        assert await has_state(row, job_id, "failed")
    finally:
        let_go.set()


async def test_an_interrupted_worker_ends_although_a_handler_does_not_stop(
    database: str, connection: Connection, row: Row, registry: Registry
) -> None:
    """Otherwise a worker that lost its lease would not be replaced."""
    let_go = threading.Event()

    @registry.register("work", timeout_seconds=0.5, max_attempts=1)
    def work(job: Job, ctx: SyncContext) -> None:
        let_go.wait()

    loop = await register(database, registry, concurrency=1, reconcile_seconds=3600)
    task = asyncio.create_task(loop.run())
    try:
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "running"))
        loop.interrupt()
        async with asyncio.timeout(20):
            await task
    finally:
        let_go.set()


async def test_a_handler_that_ends_after_its_worker_frees_no_entry_of_the_next_one(
    database: str, connection: Connection, registry: Registry
) -> None:
    """The workers of a reactor that is embedded in an application share the memory of running attempts."""
    let_go, is_next, may_end = (asyncio.Event() for _ in range(3))
    tasks: list[asyncio.Task[Any]] = []

    @registry.register("work", timeout_seconds=0.2)
    async def work(job: Job) -> None:
        if task := asyncio.current_task():
            tasks.append(task)
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    @registry.register("next")
    async def next_one(job: Job) -> None:
        is_next.set()
        await may_end.wait()

    running_attempts = RunningAttempts(1)
    first = await register(database, registry, concurrency=1, running_attempts=running_attempts)
    ended = asyncio.create_task(first.run())
    await insert(connection)
    await until(lambda: tasks)
    first.interrupt()
    async with asyncio.timeout(20):
        await ended
    running_attempts.clear()
    second = await register(database, registry, concurrency=1, running_attempts=running_attempts)
    ended = asyncio.create_task(second.run())
    try:
        await insert(connection, "next", priority=-1)
        async with asyncio.timeout(20):
            await is_next.wait()
        attempts = running_attempts.read()
        assert len(attempts) == 1
        let_go.set()
        async with asyncio.timeout(20):
            await asyncio.wait(tasks)
        assert running_attempts.read() == attempts
    finally:
        let_go.set()
        may_end.set()
        second.stop()
        async with asyncio.timeout(20):
            await ended
        running_attempts.close()


async def test_an_attempt_counts_as_started_until_its_end_is_committed(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """However often the commit is tried. The next job starts meanwhile, if there is room to list it."""

    @registry.register("work", timeout_seconds=600)
    async def work(job: Job) -> None: ...

    await hold_back_completions(connection)
    running_attempts = RunningAttempts(1, unsettled=1)
    async with running(concurrency=1, running_attempts=running_attempts) as loop:
        jobs = {await insert(connection) for _ in range(3)}
        await until(lambda: loop.counts.ended == 2)
        listed = running_attempts.read()
        assert {started.has_ended for started in listed.values()} == {True}
        last = jobs - {started.job_id for started in listed.values()}
        assert len(last) == 1
        assert (await row(*last))["started_at"] is None
        await connection.execute("drop trigger hold_back on reactor.jobs")
        for job_id in jobs:
            await until(lambda job_id=job_id: has_state(row, job_id, "completed"))
        await until(lambda: not running_attempts.read())
    running_attempts.close()


async def test_an_attempt_whose_end_is_refused_stays_listed_and_is_written_later(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """A reconciliation must not release it as never started."""

    @registry.register("work")
    async def work(job: Job) -> None: ...

    await connection.execute(
        """
        create sequence refusals;
        create function refuse() returns trigger language plpgsql as
            $$ begin perform nextval('public.refusals'); raise exception 'refused'; end $$;
        create trigger refuse before update on reactor.jobs
            for each row when (new.finished_at is not null) execute function refuse();
        """
    )
    running_attempts = RunningAttempts(1)
    async with running(concurrency=1, running_attempts=running_attempts, reconcile_seconds=3600) as loop:
        job_id = await insert(connection)
        # What it returned is refused, and then the failure that this is, again and again.
        await until(lambda: connection.fetchval("select last_value > 2 from refusals"))
        await loop.reconciliation.reconcile()
        assert [started.job_id for started in running_attempts.read().values()] == [job_id]
        await connection.execute("drop trigger refuse on reactor.jobs")
        await until(lambda: has_state(row, job_id, "failed"))
        await until(lambda: not running_attempts.read())
        assert loop.counts.claimed == 1
    running_attempts.close()
