"""Jobs that the database took away are stopped; claims that a worker does not know of are released."""

import asyncio
import threading
import time
from typing import Any

import asyncpg
import pytest

from reactor import Job, Registry, submit
from reactor.database.connection import Connection, connect
from reactor.errors import ScopeTaken
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker, register_worker
from reactor.operate import Operator, retry
from reactor.pod.in_process import Reactor
from reactor.worker import claim_loop
from tests.support.claim_loops import Running
from tests.support.jobs import Row, has_state, insert
from tests.support.logs import Events
from tests.support.until import until
from tests.support.work import Work, three_polls


async def cancel(connection: Connection, job_id: int) -> float:
    """Cancels the job, and returns the time."""
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
    return time.monotonic()


@pytest.mark.parametrize("kind", ["work", "thread"])
async def test_a_cancel_reaches_the_handler_by_notification(
    reactor: Reactor, work: Work, connection: Connection, row: Row, events: Events, kind: str
) -> None:
    """F6: within 100 ms, an async handler as CancelledError and a thread at its next call; the best of twenty, since
    the machine may be busy. The next heartbeat would come after 15 s."""
    times: list[float] = []
    while not times or (min(times) >= 0.1 and len(times) < 20):
        job_id = await insert(connection, kind)
        await until(lambda job_id=job_id: job_id in work.started)
        asked = await cancel(connection, job_id)
        await until(lambda job_id=job_id: job_id in work.cancelled)
        times.append(work.cancelled[job_id] - asked)
        assert (await row(job_id))["state"] == "cancelled"
    assert min(times) < 0.1
    await until(lambda: reactor.counts.stale == len(times))
    assert [entry["event"] for entry in events].count("writeback_stale_attempt") == len(times)


async def test_a_cancelled_jobs_scope_stays_held_until_its_handler_has_stopped(
    reactor: Reactor, work: Work, connection: Connection, row: Row
) -> None:
    """Guarantee 5, F12."""
    first = await insert(connection, "deaf", scope="s")
    await until(lambda: first in work.started)
    second = await insert(connection, "work", scope="s")
    await cancel(connection, first)
    await until(lambda: first in work.cancelled)
    assert (await row(first))["worker_id"] is not None
    await three_polls(reactor)
    assert second not in work.started
    work.let_go.set()
    await until(lambda: second in work.started)
    assert work.ended[0] == first
    assert (await row(first))["state"] == "cancelled"


async def test_an_exclusive_job_is_refused_while_the_handler_of_a_cancelled_one_runs(
    reactor: Reactor, work: Work, connection: Connection, row: Row
) -> None:
    """F12: by an insert, by reactor.submit and by a retry, and each names the job in its way."""
    options: dict[str, Any] = {"scope": "table=a", "exclusive": True}
    earlier = await insert(connection, "other", **options)
    await cancel(connection, earlier)
    first = await insert(connection, "deaf", **options)
    await until(lambda: first in work.started)
    await cancel(connection, first)
    await until(lambda: first in work.cancelled)
    assert (await row(first))["state"] == "cancelled"
    busy = await submit(connection, "work", **options)
    assert (busy.id, busy.outcome) == (first, "busy")
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_exclusive_scope_is_busy"):
        await insert(connection, "work", **options)
    with pytest.raises(ScopeTaken, match=f"job {first} holds its scope"):
        await retry(connection, [earlier], Operator("me", "test"))
    work.let_go.set()
    await until(lambda: first in work.ended)
    await until(lambda: is_free(connection))
    second = await submit(connection, "work", **options)
    assert second.outcome == "created"
    await until(lambda: second.id in work.started)


async def is_free(connection: Connection) -> bool:
    return bool(await connection.fetchval("select not exists (select from reactor.jobs where holds_scope)"))


async def test_a_job_taken_without_a_notification_is_found_by_reconciliation(
    database: str, work: Work, connection: Connection, row: Row
) -> None:
    """D5: another worker has the row, and no notification was sent: the next reconciliation stops the handler."""
    async with Reactor(database, registry=work.registry, heartbeat_seconds=0.3) as reactor:
        job_id = await insert(connection)
        await until(lambda: job_id in work.started)
        other = Worker("other", {})
        await register_worker(connection, other, 600)
        await connection.execute(
            "update reactor.jobs set attempt_id = gen_random_uuid(), worker_id = $2 where id = $1", job_id, other.id
        )
        before = await row(job_id)
        await until(lambda: job_id in work.cancelled)
        await until(lambda: reactor.counts.stale == 1)
        after = await row(job_id)
        assert (after["state"], after["attempt_id"]) == ("running", before["attempt_id"])


async def test_claims_whose_reply_was_lost_are_released(
    database: str, work: Work, connection: Connection, running: Running
) -> None:
    """Guarantee 1: a claim may commit although its reply is lost; 200 times, interrupted at different moments."""
    async with running("others", reconcile_seconds=0.3) as loop:
        worker = loop.worker
        await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 400)")
        lost = 0
        for n in range(200):
            async with connect(database, name="claimer") as claimer:
                mine = Worker(worker.pod, worker.job_types, id=worker.id)
                claiming = asyncio.create_task(claim(claimer, mine, 2))
                await asyncio.sleep(n % 20 * 0.0003)
                lost += not claiming.done()
                claimer.terminate()
                claiming.cancel()
                await asyncio.wait([claiming])
        assert lost > 20

        async def none_runs() -> bool:
            return not await connection.fetchval("select exists (select from reactor.jobs where worker_id is not null)")

        async def none_is_under_way() -> bool:
            return not await connection.fetchval(
                "select count(*) from pg_stat_activity "
                "where datname = current_database() and application_name = 'claimer'"
            )

        await until(none_is_under_way)
        await until(none_runs)
        assert await connection.fetchval("select max(attempts) from reactor.jobs") == 0
        assert not work.started


async def test_a_reconciliation_does_not_release_jobs_that_are_being_abandoned(
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


async def test_a_reconciliation_does_not_release_a_job_that_is_being_claimed_by_its_id(
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
