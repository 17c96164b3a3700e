"""At most once: a handler that has started is never started again, whatever dies."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from reactor import Context, Job, Registry, Retry, Snooze, SyncContext, submit
from reactor.database.connection import Connection, connect
from reactor.job import JobState
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.operate import Operator, recover, retry
from reactor.testing import run_until_idle
from tests.support.jobs import Row, has_state, insert
from tests.support.pods import Marks, StartPod
from tests.support.until import until

ME = Operator("me", "test")
ONCE: dict[str, Any] = {"delivery": "at_most_once"}
NOTE = "It is delivered at most once, and does not start again."


def starts(marks: Marks, job_id: int) -> int:
    return [job for job, *_ in marks("started")].count(job_id)


# What dies under it


@pytest.mark.parametrize("kind", ["await", "thread", "block"])
async def test_a_job_whose_worker_process_was_killed_fails(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks, kind: str
) -> None:
    """J8: where an ordinary job runs again, at once and without a charge."""
    pod = await start_pod("--concurrency", "2")
    job_id, ordinary = await insert(connection, kind, **ONCE), await insert(connection, "await")
    await until(lambda: starts(marks, job_id) and (kind == "block" or starts(marks, ordinary)))
    [worker] = pod.workers
    pod.kill(worker)
    await until(lambda: has_state(row, job_id, "failed"))
    await until(lambda: starts(marks, ordinary) == (1 if kind == "block" else 2))
    after = await row(job_id)
    assert "SIGKILL" in after["error"]
    assert after["error"].endswith(NOTE)
    assert (after["attempts"], starts(marks, job_id)) == (1, 1)


async def test_a_job_that_crashed_before_it_had_started_is_not_run_in_quarantine(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """Its process died between the claim and the start. An ordinary job that crashes again is run alone."""
    pod = await start_pod()
    async with connection.transaction():
        job_id = await insert(connection, "await", **ONCE)
        crash = "insert into reactor.attempts (job_id, attempt_id, number, outcome) values ($1, $2, 1, 'crashed')"
        await connection.execute(crash, job_id, uuid4())
    await until(lambda: starts(marks, job_id))
    [worker] = pod.workers
    pod.kill(worker)
    await until(lambda: has_state(row, job_id, "failed"))
    assert starts(marks, job_id) == 1
    assert "SIGKILL" in (await row(job_id))["error"], "it is not left for the sweeper"


@pytest.mark.parametrize("kind", ["exit", "close_files"])
async def test_a_job_that_ends_its_process_fails_at_once(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks, kind: str
) -> None:
    """Also one whose handler has returned, and whose end could not be committed; it is not run in quarantine."""
    await start_pod("--concurrency", "3")
    job_id, neighbour = await insert(connection, kind, **ONCE), await insert(connection, "held")
    await until(lambda: has_state(row, job_id, "failed"))
    assert (await row(job_id))["error"].endswith(NOTE)
    assert starts(marks, job_id) == 1
    assert (await row(neighbour))["state"] != "failed"


async def test_a_job_of_a_dead_pod_fails_when_its_lease_ends(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """And one that the pod had claimed, but not started, runs elsewhere."""
    dead = await start_pod("--concurrency", "1", "--queues", "a")
    job_id = await insert(connection, "await", queue="a", **ONCE)
    await until(lambda: starts(marks, job_id))
    claimed = await insert(connection, "noop", queue="b", **ONCE)
    holder = await connection.fetchrow("select * from reactor.workers")
    assert holder
    assert await claim_one(connection, Worker("pod-1", {"noop": 3}, id=holder["id"]), claimed)
    dead.kill()
    await start_pod("--queues", "a,b")
    await connection.execute("update reactor.workers set lease_until = now() where id = $1", holder["id"])
    await until(lambda: has_state(row, job_id, "failed"))
    await until(lambda: has_state(row, claimed, "completed"))
    assert "died or sent no heartbeat" in (await row(job_id))["error"]
    assert (starts(marks, job_id), starts(marks, claimed)) == (1, 1)


async def test_a_job_that_runs_when_its_pod_stops_fails_and_one_that_waits_for_a_slot_does_not(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """F10: SIGTERM releases an ordinary job."""
    pod = await start_pod("--concurrency", "1", SHUTDOWN_GRACE_SECONDS=0)
    running, waiting = [await insert(connection, "await", **ONCE) for _ in range(2)]
    await until(lambda: starts(marks, running))
    pod.signal(signal.SIGTERM)
    await pod.exit_code()
    assert ((await row(running))["state"], (await row(waiting))["state"]) == ("failed", "pending")
    assert "shut down" in (await row(running))["error"]
    assert (await row(running))["error"].endswith(NOTE)


# What its handler does


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def run(database: str, registry: Registry) -> None:
    async with asyncio.timeout(20):
        await run_until_idle(database, registry, skip_delays=True)


@pytest.mark.parametrize(
    ("raises", "complaint"),
    [(ValueError("boom"), "boom"), (Retry("busy", after=0), "busy"), (Snooze(0, "no file yet"), "no file yet")],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("chosen_by", ["the handler", "the job"])
async def test_a_handler_that_raises_is_not_called_again(
    database: str,
    connection: Connection,
    registry: Registry,
    row: Row,
    raises: Exception,
    complaint: str,
    chosen_by: str,
) -> None:
    calls: list[int] = []

    async def work(job: Job) -> None:
        calls.append(job.id)
        raise raises

    registry.register("work", **(ONCE if chosen_by == "the handler" else {}))(work)
    job_id = await insert(connection, **(ONCE if chosen_by == "the job" else {}))
    await run(database, registry)
    after = await row(job_id)
    assert (after["state"], after["attempts"], calls) == ("failed", 1, [job_id])
    assert complaint in after["error"]
    assert after["error"].endswith(NOTE)


async def test_a_job_may_be_delivered_more_often_than_its_handler_says(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    @registry.register("work", backoff=0, delivery="at_most_once")
    async def work(job: Job) -> None:
        if job.attempts < 3:
            raise ValueError

    job_id = await insert(connection, delivery="at_least_once")
    await run(database, registry)
    assert ((await row(job_id))["state"], (await row(job_id))["attempts"]) == ("completed", 3)


async def test_a_job_that_times_out_fails(database: str, connection: Connection, registry: Registry, row: Row) -> None:
    @registry.register("work", timeout_seconds=0.05, delivery="at_most_once")
    async def work() -> None:
        await asyncio.sleep(60)

    job_id = await insert(connection)
    await run(database, registry)
    assert (await row(job_id))["state"] == "failed"
    assert (await row(job_id))["error"].endswith(NOTE)


async def test_a_transaction_that_the_server_undid_is_not_repeated(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    """An ordinary handler is called again within its attempt."""
    calls: list[int] = []

    @registry.register("work", delivery="at_most_once")
    async def work(job: Job, ctx: Context) -> None:
        calls.append(job.id)
        async with ctx.transaction() as own:
            await own.execute("do $$ begin raise exception using errcode = 'deadlock_detected'; end $$")

    job_id = await insert(connection)
    await run(database, registry)
    after = await row(job_id)
    assert (after["state"], calls) == ("failed", [job_id])
    assert "deadlock" in after["error"].lower()
    assert after["error"].endswith(NOTE)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_that_completes_is_an_ordinary_one(
    database: str, connection: Connection, registry: Registry, row: Row, kind: str
) -> None:
    """Its start is committed before its handler is called."""
    seen: list[Any] = []
    loop = asyncio.get_running_loop()

    async def look(job_id: int) -> None:
        seen.append((await row(job_id))["started_once"])

    async def direct(job: Job, ctx: Context) -> dict[str, int]:
        await look(job.id)
        async with ctx.transaction() as own:
            return {"one": await own.fetchval("select 1")}

    def threaded(job: Job, ctx: SyncContext) -> dict[str, int]:
        asyncio.run_coroutine_threadsafe(look(job.id), loop).result()
        return {"one": 1}

    handlers: dict[str, Callable[..., Any]] = {"async": direct, "thread": threaded}
    registry.register("work", delivery="at_most_once")(handlers[kind])
    job_id = await insert(connection)
    await run(database, registry)
    after = await row(job_id)
    assert (after["state"], after["result"], after["error"], seen) == ("completed", '{"one": 1}', None, [True])


async def test_a_handler_whose_job_was_taken_before_it_started_is_not_called(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    """F5: the start needs the fence. A row that another session has locked is waited for."""
    calls: list[int] = []

    @registry.register("work", delivery="at_most_once")
    async def work(job: Job) -> None:
        calls.append(job.id)

    job_id = await insert(connection)
    async with connect(database, name="operator") as operator:
        await operator.execute(
            "create function hold() returns trigger language plpgsql as $$ begin "
            "if new.started_once and not old.started_once then perform pg_advisory_xact_lock(1); end if; "
            "return null; end $$; "
            "create trigger hold after update of started_once on reactor.jobs for each row execute function hold()"
        )
        await operator.execute("select pg_advisory_lock(1)")
        running = asyncio.create_task(run(database, registry))
        waits = "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
        await until(lambda: connection.fetchval(waits))
        assert calls == []
        cancelling = asyncio.create_task(
            connection.execute("select from reactor.cancel(array[$1::bigint], 'x')", job_id)
        )
        await operator.execute("select pg_advisory_unlock(1)")
        await asyncio.gather(running, cancelling)
    assert (await row(job_id))["state"] in ("cancelled", "completed")
    assert len(calls) <= 1


# What operators do


async def test_an_operator_can_retry_a_job_that_was_delivered_once(
    database: str, connection: Connection, registry: Registry, row: Row
) -> None:
    calls: list[int] = []

    @registry.register("work", delivery="at_most_once")
    async def work(job: Job) -> None:
        calls.append(job.id)
        if len(calls) == 1:
            raise ValueError

    job_id = await insert(connection)
    await run(database, registry)
    await retry(connection, [job_id], ME)
    assert not (await row(job_id))["started_once"]
    await run(database, registry)
    assert ((await row(job_id))["state"], calls) == ("completed", [job_id, job_id])


async def test_an_operator_can_recover_a_job_of_a_dead_pod(connection: Connection, row: Row, worker: Worker) -> None:
    """P7: before the sweeper fails it."""
    job_id = await insert(connection, **ONCE)
    assert await claim_one(connection, worker, job_id)
    await connection.execute("update reactor.jobs set started_once = true, quota = attempts")
    await connection.execute("update reactor.workers set lease_until = now()")
    await recover(connection, job_id, ME)
    after = await row(job_id)
    assert (after["state"], after["attempts"], after["started_once"]) == (JobState.PENDING, 0, False)


async def test_another_delivery_is_refused(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="'exactly_once' is not a valid delivery"):
        await submit(connection, "work", delivery="exactly_once")  # type: ignore[call-overload]
    with pytest.raises(asyncpg.CheckViolationError, match="is not a valid delivery"):
        await connection.execute("insert into reactor.jobs (job_type, delivery) values ('work', '')")
