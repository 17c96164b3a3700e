"""What happens when two things happen at once, or in the wrong order."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reactor import Context, Job, Registry, SyncContext
from reactor.database.connection import Connection, connect
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import NEVER
from reactor.lifecycle.claim import claim_one
from reactor.pod.in_process import Reactor
from reactor.schedules.run_due import run_due
from reactor.testing import run_until_idle
from reactor.worker.due_times import ScheduledJobs

Row = Callable[[int], Awaitable[dict[str, Any]]]
Until = Callable[..., Awaitable[Any]]


async def insert(connection: Connection, job_type: str = "work", **columns: Any) -> int:
    names = ["job_type", *columns]
    places = ", ".join(f"${n}" for n in range(1, len(names) + 1))
    job_id: int = await connection.fetchval(
        f"insert into reactor.jobs ({', '.join(names)}) values ({places}) returning id", job_type, *columns.values()
    )
    return job_id


async def cancel(connection: Connection, job_id: int) -> None:
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)


async def _is(row: Row, job_id: int, state: str) -> bool:
    return bool((await row(job_id))["state"] == state)


async def test_a_transaction_that_two_tasks_open_at_once_loses_nothing(
    database: str, connection: Connection, row: Row, until: Until
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
        await until(lambda: _ended(row, job_id))
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


async def _ended(row: Row, job_id: int) -> bool:
    return (await row(job_id))["finished_at"] is not None


async def test_a_scheduled_job_of_which_no_notification_came_is_run(
    database: str, connection: Connection, row: Row, until: Until
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
        await until(lambda: _is(row, job_id, "completed"))


async def test_a_handler_that_is_stopped_again_while_it_rolls_back_is_not_forgotten(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    """Its slot is free afterwards, and its job runs again."""
    registry = Registry()
    reactor: Reactor

    @registry.register("work", timeout_seconds=0.3, backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        if job.attempts > 1:
            return
        async with ctx.transaction():
            pass
        try:
            await asyncio.sleep(60)
        finally:
            asyncio.get_running_loop().call_soon(reactor._claim_loop.slots.interrupt)

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0) as reactor:
        job_id = await insert(connection)
        await until(lambda: _is(row, job_id, "completed"))


async def test_an_attempt_that_loses_its_job_before_it_starts_frees_its_slot_and_scope(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        slots = reactor._claim_loop.slots
        take = slots.take

        def take_and_lose(jobs: list[Job]) -> None:
            take(jobs)
            if jobs:
                slots.take = take  # type: ignore[method-assign]
                slots.lose({job.attempt_id for job in jobs})

        slots.take = take_and_lose  # type: ignore[method-assign,assignment]
        await insert(connection)
        await until(lambda: reactor.counts.stale == 1)
        assert slots.free == 1


async def test_a_cancelled_job_that_had_not_started_frees_its_scope(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    """It was claimed ahead, and waited for a slot."""
    registry = Registry()
    let_go = asyncio.Event()

    @registry.register("work")
    async def work(job: Job) -> None:
        await let_go.wait()

    @registry.register("quick")
    async def quick(job: Job) -> None: ...

    # So that no reconciliation repairs it meanwhile.
    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0, heartbeat_seconds=30) as reactor:
        await until(lambda: reactor.is_well)
        reactor._claim_loop.claim_ahead.ahead = lambda: 5  # type: ignore[method-assign]
        async with connection.transaction():
            await insert(connection)
            waits = await insert(connection, scope="s")
        await until(lambda: reactor._claim_loop.slots.waiting == 1)
        await cancel(connection, waits)
        await until(lambda: not reactor._claim_loop.slots.waiting)
        let_go.set()
        next_one = await insert(connection, "quick", scope="s")
        await until(lambda: _is(row, next_one, "completed"))


async def test_a_notification_while_no_slot_is_free_is_kept_until_one_is(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    registry = Registry()
    let_go = asyncio.Event()

    @registry.register("work")
    async def work(job: Job) -> None:
        await let_go.wait()

    ahead = 5
    # So that neither a poll nor a reconciliation helps meanwhile.
    async with Reactor(
        database, registry=registry, concurrency=1, poll_seconds=0, grace_seconds=0, heartbeat_seconds=30
    ) as reactor:
        await until(lambda: reactor.is_well)
        reactor._claim_loop.claim_ahead.ahead = lambda: ahead  # type: ignore[method-assign]
        async with connection.transaction():
            for _ in range(3):
                await insert(connection)
        await until(lambda: reactor._claim_loop.slots.waiting == 2)
        ahead = 0  # they were quick, and are slow now
        heard = reactor.counts.wakes
        await asyncio.sleep(0.05)  # the notification of the last three silences others for 10 ms
        last = await insert(connection)
        await until(lambda: reactor.counts.wakes > heard)
        await asyncio.sleep(0.1)
        let_go.set()
        await until(lambda: _is(row, last, "completed"))


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


async def test_a_schedule_that_changes_while_schedules_run_is_run_again(
    database: str, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    runs, notified_at, is_armed = 0, 0, False

    async def run_and_notify(connection: Connection) -> float:
        nonlocal runs, notified_at, is_armed
        pause = await run_due(connection)
        runs += 1
        if is_armed:
            is_armed, notified_at = False, runs
            reactor._claim_loop.schedules.notify()
        return pause

    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    async with Reactor(database, registry=registry, poll_seconds=0, grace_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        monkeypatch.setattr("reactor.worker.due_times.run_due", run_and_notify)
        reactor._claim_loop.schedules.notify()
        await until(lambda: runs)
        await asyncio.sleep(0.1)  # the runs of the start are over
        is_armed = True
        reactor._claim_loop.schedules.notify()
        await until(lambda: 0 < notified_at < runs)


async def test_progress_on_a_locked_row_delays_no_other_job(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
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
        await until(lambda: _is(row, job_id, "running"))
        async with operator.transaction():
            await operator.execute("select from reactor.jobs where id = $1 for update", job_id)
            is_locked.set()
            await asyncio.sleep(0.3)
            other = await insert(connection, "quick")
            await until(lambda: _is(row, other, "completed"))
            assert not went_on.is_set()
        await until(lambda: _is(row, job_id, "completed"))
        assert (await row(job_id))["progress"] == 1


async def test_a_database_that_is_read_only_for_a_while_fails_no_job(
    database: str, connection: Connection, row: Row, until: Until
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
        await until(lambda: _is(row, job_id, "running"))
        await connection.execute(f"alter database {name} set default_transaction_read_only = on")
        await connection.execute(kick, name)
        let_go.set()
        await asyncio.sleep(1)
        await connection.execute(f"alter database {name} reset default_transaction_read_only")
        await until(lambda: _ended(row, job_id))
        ended = await row(job_id)
        assert (ended["state"], ended["attempts"], ended["error"]) == ("completed", 1, None)
        assert began == [job_id]


async def test_jobs_end_where_transactions_are_repeatable_read_by_default(
    database: str, connection: Connection, row: Row, until: Until
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
        await until(lambda: _is(row, job_id, "completed"))
        assert began == [job_id]


async def test_a_handlers_transaction_may_rest_however_often_its_connection_was_used(
    database: str, connection: Connection, row: Row, until: Until
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
            await until(lambda job_id=job_id: _ended(row, job_id))
            assert (await row(job_id))["error"] is None
    assert len(began) == 2


async def test_an_embedded_reactor_can_be_left_before_it_has_started(database: str) -> None:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None: ...

    @registry.lifespan
    async def slow() -> Any:
        await asyncio.sleep(0.3)
        yield None

    async with Reactor(database, registry=registry, grace_seconds=0):
        pass


async def test_jobs_claimed_while_it_is_being_stopped_do_not_start(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    registry = Registry()
    began: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        began.append(job.id)

    async with (
        Reactor(database, registry=registry, poll_seconds=0, grace_seconds=1) as reactor,
        connect(database, name="operator") as operator,
    ):
        await until(lambda: reactor.is_well)
        lock = operator.transaction()
        await lock.start()
        await operator.execute("lock table reactor.workers in access exclusive mode")
        job_id = await insert(connection)
        await until(lambda: _waits_for_a_lock(connection))
        reactor._stopping = True  # or another incarnation would run it
        reactor._claim_loop.interrupt()
        await lock.rollback()
        await until(lambda: reactor._running.done())
    after = await row(job_id)
    assert (began, after["state"], after["attempts"]) == ([], "pending", 0)
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0


async def _waits_for_a_lock(connection: Connection) -> bool:
    found: bool = await connection.fetchval(
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and application_name like 'reactor claim%')"
    )
    return found


async def test_a_context_is_closed_after_its_attempt(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    """Else a transaction that is opened then would stay open for ever."""
    registry = Registry()
    raised: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []
    has_ended = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def late() -> None:
            await has_ended.wait()
            try:
                async with ctx.transaction():
                    pass
            except BaseException as error:
                raised.append(error)

        tasks.append(asyncio.create_task(late()))

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: _ended(row, job_id))
        has_ended.set()
        await until(lambda: tasks[0].done())
        assert raised
        await until(lambda: _no_transaction_is_open(connection))


async def test_anything_that_a_handler_raises_or_returns_ends_its_attempt(
    database: str, connection: Connection, row: Row, until: Until
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
                await until(lambda job_id=job_id: _ended(row, job_id))
            except AssertionError as error:
                raise AssertionError(kind) from error
        neighbour_may_end.set()
        await until(lambda: _ended(row, beside))
        assert (await row(beside))["attempts"] == 1


async def test_a_worker_with_an_abandoned_handler_ends_as_soon_as_that_is_written(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    registry = Registry()
    let_go = threading.Event()

    @registry.register("work", timeout_seconds=0.1, max_attempts=1)
    def work(job: Job, ctx: SyncContext) -> None:
        let_go.wait()

    # So that no reconciliation helps meanwhile.
    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=30, heartbeat_seconds=30) as reactor:
        running = reactor._claim_loop
        running.on_stuck = running.stop
        job_id = await insert(connection)
        await until(lambda: _is(row, job_id, "failed"))
        await until(lambda: reactor._claim_loop is not running)
        let_go.set()
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 20


async def test_a_worker_that_lost_its_lease_is_replaced_although_a_handler_does_not_stop(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    registry = Registry()
    let_go = threading.Event()

    @registry.register("work", timeout_seconds=0.5, max_attempts=1)
    def work(job: Job, ctx: SyncContext) -> None:
        let_go.wait()

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0) as reactor:
        running = reactor._claim_loop
        try:
            job_id = await insert(connection)
            await until(lambda: _is(row, job_id, "running"))
            running.interrupt()
            await until(lambda: reactor._claim_loop is not running)
        finally:
            let_go.set()


async def test_a_handler_that_ends_after_its_worker_frees_no_entry_of_the_next_one(
    database: str, connection: Connection, until: Until
) -> None:
    """The workers of an embedded reactor share the memory of running attempts."""
    registry = Registry()
    let_go, has_ended, is_next, may_end = (asyncio.Event() for _ in range(4))

    @registry.register("work", timeout_seconds=0.2)
    async def work(job: Job) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        has_ended.set()

    @registry.register("next")
    async def next_one(job: Job) -> None:
        is_next.set()
        await may_end.wait()

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0) as reactor:
        running = reactor._claim_loop
        try:
            await insert(connection, priority=1)
            await until(lambda: running.slots.held)
            await insert(connection, "next")
            running.interrupt()
            async with asyncio.timeout(20):
                await is_next.wait()
            attempts = reactor._running_attempts.read()
            assert len(attempts) == 1
            let_go.set()
            async with asyncio.timeout(20):
                await has_ended.wait()
            await asyncio.sleep(0.1)
            assert reactor._running_attempts.read() == attempts
        finally:
            let_go.set()
            may_end.set()


async def test_a_reconciliation_does_not_release_what_is_being_abandoned(
    database: str, connection: Connection, row: Row, until: Until
) -> None:
    """Guarantee 5: its scope stays held, for its thread still runs. The batch writer is busy with a locked row."""
    registry = Registry()
    let_go = threading.Event()
    is_locked = asyncio.Event()

    @registry.register("work", timeout_seconds=0.1, backoff=60)
    def work(job: Job) -> None:
        let_go.wait()

    @registry.register("quick")
    async def quick(job: Job) -> None:
        await is_locked.wait()
        await asyncio.sleep(1)

    async with (
        Reactor(database, registry=registry, grace_seconds=0) as reactor,
        connect(database, name="operator") as operator,
    ):
        try:
            other = await insert(connection, "quick")
            await until(lambda: _is(row, other, "running"))
            async with operator.transaction():
                await operator.execute("select from reactor.jobs where id = $1 for update", other)
                is_locked.set()
                job_id = await insert(connection, scope="s")

                async def is_pending_again() -> bool:
                    await connection.execute(
                        "select pg_notify('reactor_cancel', $1)", str(reactor._claim_loop.worker.id)
                    )
                    now = await row(job_id)
                    return bool(now["state"] == "pending" and now["locked_at"])

                await until(is_pending_again)
                assert (await row(job_id))["worker_id"] is not None
                assert (await row(job_id))["attempts"] == 1
        finally:
            let_go.set()


async def test_a_reconciliation_does_not_release_what_is_being_claimed_by_its_id(
    database: str, connection: Connection, row: Row, until: Until, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 5: its handler would run while its scope is free for another job."""
    states: list[str] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        states.append((await row(job.id))["state"])

    async with Reactor(database, registry=registry, queues=["elsewhere"], poll_seconds=0, grace_seconds=0) as reactor:
        reconciling: list[asyncio.Task[None]] = []

        async def claim_during_a_reconciliation(*arguments: Any) -> Job | None:
            job = await claim_one(*arguments)
            reconciling.append(asyncio.create_task(reactor._claim_loop.reconciliation.reconcile()))
            await asyncio.wait(reconciling, timeout=0.3)  # it waits for us, as it should
            return job

        monkeypatch.setattr("reactor.worker.claim_loop.claim_one", claim_during_a_reconciliation)
        assert await reactor.run_job(await insert(connection, scope="s")) == "completed"
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
