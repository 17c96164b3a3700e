"""What happens when two things happen at once, or in the wrong order."""

import asyncio
import threading
from typing import Any

import pytest

from reactor import Context, Job, Registry, SyncContext
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import NEVER
from reactor.lifecycle.claim import claim_one
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from reactor.worker import claim_loop
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.due_times import ScheduledJobs, Schedules
from tests.support.claim_loops import Running, register
from tests.support.jobs import Row, has_ended, has_state, insert
from tests.support.until import until


async def cancel(connection: Connection, job_id: int) -> None:
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)


async def test_a_transaction_that_two_tasks_open_at_once_loses_nothing(
    database: str, connection: Connection, row: Row
) -> None:
    """Guarantee 4: what a completed handler wrote is there."""
    await connection.execute("create table ledger (n int)")
    registry = Registry()

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async def write(n: int) -> None:
            async with ctx.transaction() as session:
                await session.execute("insert into ledger values ($1)", n)

        await asyncio.gather(write(1), write(2))

    async with Reactor(database, registry=registry, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_ended(row, job_id))
        ended = await row(job_id)
        written = await connection.fetchval("select count(*) from ledger")
        assert (ended["state"], written) in (("completed", 2), ("failed", 0))
        await until(lambda: _no_transaction_is_open(connection))


async def _no_transaction_is_open(connection: Connection) -> bool:
    """The engine's own, which are short, may be seen too."""
    found: int = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    )
    return found == 0


async def test_a_scheduled_job_of_which_no_notification_came_is_run(
    database: str, connection: Connection, row: Row
) -> None:
    """Guarantee 1: the poller finds scheduled jobs too."""
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    async with Reactor(database, registry=registry, poll_seconds=0.2) as reactor:
        await until(lambda: reactor.is_well and reactor.counts.polls > 1)
        await connection.execute("set session_replication_role = replica")  # no trigger, no notification
        job_id = await connection.fetchval(
            "insert into reactor.jobs (job_type, run_after) values ('work', now() + interval '0.5 s') returning id"
        )
        await until(lambda: has_state(row, job_id, "completed"))


async def test_a_handler_that_is_stopped_again_while_it_rolls_back_is_not_forgotten(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """Its slot is free afterwards, and its job runs again."""
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


async def test_a_notification_while_no_slot_is_free_is_kept_until_one_is(
    connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    let_go = asyncio.Event()

    @registry.register("work")
    async def work(job: Job) -> None:
        await let_go.wait()

    ahead = 5
    # A poll or the timed reconciliation would find the job too.
    async with running(concurrency=1, poll_seconds=0, reconcile_seconds=3600) as loop:
        loop.claim_ahead.ahead = lambda: ahead  # type: ignore[method-assign]
        async with connection.transaction():
            for _ in range(3):
                await insert(connection)
        await until(lambda: loop.slots.waiting == 2)
        ahead = 0  # as if handlers had become slow
        heard = loop.counts.wakes
        await asyncio.sleep(0.05)  # an insert notifies only if none has for 10 ms
        last = await insert(connection)
        await until(lambda: loop.counts.wakes > heard)
        await asyncio.sleep(0.1)  # for a claim that must not happen: it would use up the notification
        let_go.set()
        await until(lambda: has_state(row, last, "completed"))


async def test_a_notification_while_due_jobs_are_made_ready_causes_another_check(database: str) -> None:
    class Notified(ReconnectingConnection):
        async def retry(self, operation: Any) -> Any:
            answer = await super().retry(operation)
            if is_armed:
                scheduled_jobs.notify()
            return answer

    is_armed, connection = False, Notified(database, "test")
    scheduled_jobs = ScheduledJobs(connection)
    assert await scheduled_jobs.promote() == 0
    assert scheduled_jobs.next_at == NEVER, "there is nothing to be made ready"
    scheduled_jobs.check_now()
    is_armed = True
    assert await scheduled_jobs.promote() == 0
    assert scheduled_jobs.next_at < NEVER
    await connection.close()


async def test_a_schedule_that_changes_while_schedules_run_is_run_again(database: str) -> None:
    class Notified(ReconnectingConnection):
        runs = 0

        async def retry(self, operation: Any) -> Any:
            answer = await super().retry(operation)
            self.runs += 1
            if self.runs == 1:
                schedules.notify()
            return answer

    connection = Notified(database, "test")
    schedules = Schedules(connection, longest_pause=NEVER)
    running = asyncio.create_task(schedules.run())
    await until(lambda: connection.runs == 2)
    schedules.stop()
    await running
    await connection.close()


async def test_progress_on_a_locked_row_delays_no_other_job(database: str, connection: Connection, row: Row) -> None:
    registry = Registry()
    is_locked, went_on = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await is_locked.wait()
        await ctx.progress(0.5, "half")
        went_on.set()

    @registry.register("quick")
    async def quick(job: Job) -> None: ...

    async with (
        Reactor(database, registry=registry, grace_seconds=0),
        connect(database, name="operator") as operator,
    ):
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "running"))
        async with operator.transaction():
            await operator.execute("select from reactor.jobs where id = $1 for update", job_id)
            is_locked.set()
            await until(lambda: _waits_for_a_lock(connection, "settle"))
            other = await insert(connection, "quick")
            await until(lambda: has_state(row, other, "completed"))
            assert not went_on.is_set()
        await until(lambda: has_state(row, job_id, "completed"))
        assert (await row(job_id))["progress"] == 1


async def test_a_database_that_is_read_only_for_a_while_fails_no_job(
    database: str, connection: Connection, row: Row
) -> None:
    """As after a failover, when the address still leads to the old server."""
    registry = Registry()
    began: list[int] = []
    let_go = asyncio.Event()

    @registry.register("work", max_attempts=1)
    async def work(job: Job) -> None:
        began.append(job.id)
        await let_go.wait()

    name = await connection.fetchval("select current_database()")
    kick = (
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name like 'reactor%'"
    )
    async with Reactor(database, registry=registry, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "running"))
        await connection.execute(f"alter database {name} set default_transaction_read_only = on")
        await connection.execute(kick, name)
        let_go.set()
        await asyncio.sleep(1)  # for several attempts to write the end, which must not fail the job
        await connection.execute(f"alter database {name} reset default_transaction_read_only")
        await until(lambda: has_ended(row, job_id))
        ended = await row(job_id)
        assert (ended["state"], ended["attempts"], ended["error"]) == ("completed", 1, None)
        assert began == [job_id]


async def test_jobs_end_where_transactions_are_repeatable_read_by_default(
    database: str, connection: Connection, row: Row
) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    registry = Registry()
    began: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        began.append(job.id)

    async with Reactor(database, registry=registry, heartbeat_seconds=0.3, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "completed"))
        assert began == [job_id]


async def test_a_handlers_transaction_may_rest_however_often_its_connection_was_used(
    database: str, connection: Connection, row: Row
) -> None:
    """It is exempt from limits on idle transactions."""
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set idle_in_transaction_session_timeout = '300ms'")
    registry = Registry()
    began: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        began.append(job.id)
        async with ctx.transaction() as session:
            await session.execute("select 1")
            await asyncio.sleep(job.payload["seconds"])
            await session.execute("select 1")

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0):
        for seconds in (0, 0.8):
            job_id = await insert(connection, payload=f'{{"seconds": {seconds}}}')
            await until(lambda job_id=job_id: has_ended(row, job_id))
            assert (await row(job_id))["error"] is None
    assert len(began) == 2


async def test_an_embedded_reactor_can_be_left_before_it_has_started(database: str) -> None:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    @registry.lifespan
    async def slow() -> Any:
        await asyncio.sleep(0.3)  # longer than the block below takes
        yield None

    async with Reactor(database, registry=registry, grace_seconds=0):
        pass


async def test_jobs_claimed_while_it_is_being_stopped_do_not_start(
    database: str, connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    started: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        started.append(job.id)

    async with running(poll_seconds=0) as loop, connect(database, name="operator") as operator:
        lock = operator.transaction()
        await lock.start()
        await operator.execute("lock table reactor.workers in access exclusive mode")
        job_id = await insert(connection)
        await until(lambda: _waits_for_a_lock(connection, "claim"))
        loop.interrupt()
        await lock.rollback()
    after = await row(job_id)
    assert (started, after["state"], after["attempts"]) == ([], "pending", 0)
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0


async def _waits_for_a_lock(connection: Connection, purpose: str) -> bool:
    found: bool = await connection.fetchval(
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and application_name like 'reactor ' || $1 || '%')",
        purpose,
    )
    return found


async def test_a_context_is_closed_after_its_attempt(database: str, connection: Connection, row: Row) -> None:
    """Else a transaction that is opened then would stay open for ever."""
    registry = Registry()
    raised: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []
    is_over = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def late() -> None:
            await is_over.wait()
            try:
                async with ctx.transaction():
                    pass
            except BaseException as error:
                raised.append(error)

        tasks.append(asyncio.create_task(late()))

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_ended(row, job_id))
        is_over.set()
        await until(lambda: tasks[0].done())
        assert raised
        await until(lambda: _no_transaction_is_open(connection))


async def test_anything_that_a_handler_raises_or_returns_ends_its_attempt(
    database: str, connection: Connection, row: Row
) -> None:
    """And no other's."""
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


async def test_a_worker_with_an_abandoned_handler_ends_as_soon_as_that_is_written(
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


async def test_a_reconciliation_does_not_release_what_is_being_abandoned(
    database: str, connection: Connection, row: Row, registry: Registry, running: Running
) -> None:
    """Guarantee 5: its scope stays held, since its thread still runs. The batch writer is busy with a locked row."""
    let_go = threading.Event()
    is_locked = asyncio.Event()

    @registry.register("work", timeout_seconds=0.1, backoff=60)
    def work(job: Job) -> None:
        let_go.wait()

    @registry.register("quick")
    async def quick(job: Job) -> None:
        await is_locked.wait()
        await asyncio.sleep(1)  # so that its end, which waits for the lock, is written while the other times out

    async with (
        running(),
        connect(database, name="operator") as operator,
    ):
        try:
            other = await insert(connection, "quick")
            await until(lambda: has_state(row, other, "running"))
            async with operator.transaction():
                await operator.execute("select from reactor.jobs where id = $1 for update", other)
                is_locked.set()
                job_id = await insert(connection, scope="s")

                async def is_pending_again() -> bool:
                    await connection.execute("select pg_notify('reactor_cancel', id::text) from reactor.workers")
                    now = await row(job_id)
                    return bool(now["state"] == "pending" and now["locked_at"])

                await until(is_pending_again)
                assert (await row(job_id))["worker_id"] is not None
                assert (await row(job_id))["attempts"] == 1
        finally:
            let_go.set()


async def test_a_reconciliation_does_not_release_what_is_being_claimed_by_its_id(
    connection: Connection, row: Row, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 5: its handler would run while its scope is free for another job."""
    states: list[str] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        states.append((await row(job.id))["state"])

    async with running("elsewhere", poll_seconds=0, reconcile_seconds=3600) as loop:
        reconciling: list[asyncio.Task[None]] = []

        async def claim_during_a_reconciliation(*arguments: Any) -> Job | None:
            job = await claim_one(*arguments)
            reconciling.append(asyncio.create_task(loop.reconciliation.reconcile()))
            await asyncio.wait(reconciling, timeout=0.3)  # it must wait for the claim
            return job

        monkeypatch.setattr(claim_loop, "claim_one", claim_during_a_reconciliation)
        assert await loop.run_job(await insert(connection, scope="s")) == "completed"
        await asyncio.gather(*reconciling)
    assert states == ["running"]


async def test_progress_that_the_database_refuses_fails_only_its_own_job(
    database: str, connection: Connection, row: Row, registry: Registry
) -> None:
    """A refusal, by a user's trigger for example, must not end the worker that all jobs share."""
    await connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'not here'; end $$;"
        "create trigger refuse before update of progress on reactor.jobs for each row "
        "when (new.progress = 0.25 and new.progress is distinct from old.progress) execute function refuse()"
    )

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        await ctx.progress(job.payload["progress"])

    ids = [
        await connection.fetchval(
            "insert into reactor.jobs (job_type, payload) values ('work', $1) returning id",
            f'{{"progress": {progress}}}',
        )
        for progress in (0.5, 0.25, 0.75)
    ]
    await run_until_idle(database, registry)
    assert [(await row(job_id))["state"] for job_id in ids] == ["completed", "failed", "completed"]
    assert "not here" in (await row(ids[1]))["error"]
