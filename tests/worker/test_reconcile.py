"""Cancel, preemption, pauses and drains, with handlers that run."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from reactor import Context, Job, Registry, SyncContext
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, register_worker
from reactor.pod.in_process import Reactor
from tests.support.claim_loops import Running
from tests.support.jobs import Row, insert
from tests.support.logs import Events
from tests.support.until import until


class Work:
    """Handlers that can be watched and let go."""

    def __init__(self, registry: Registry) -> None:
        self.began: list[int] = []
        self.cancelled: dict[int, float] = {}
        self.ended: list[int] = []
        self.let_go = asyncio.Event()
        self.registry = registry

        @self.registry.register("work")
        async def work(job: Job, ctx: Context) -> None:
            self.began.append(job.id)
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled[job.id] = time.monotonic()
                raise
            self.ended.append(job.id)

        @self.registry.register("deaf")
        async def deaf(job: Job, ctx: Context) -> None:
            """Does not want to stop."""
            self.began.append(job.id)
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.cancelled[job.id] = time.monotonic()
            self.ended.append(job.id)

        @self.registry.register("thread")
        def thread(job: Job, ctx: SyncContext) -> None:
            self.began.append(job.id)
            try:
                while True:
                    time.sleep(0.01)
                    ctx.check()
            finally:
                self.cancelled[job.id] = time.monotonic()


@pytest.fixture
def work(registry: Registry) -> Work:
    return Work(registry)


@pytest.fixture
async def reactor(database: str, work: Work) -> AsyncIterator[Reactor]:
    async with Reactor(
        database, registry=work.registry, poll_seconds=0.5, lease_seconds=60, heartbeat_seconds=15, grace_seconds=0
    ) as reactor:
        await until(lambda: reactor.is_well)
        yield reactor
        work.let_go.set()


async def cancel(connection: Connection, job_id: int) -> float:
    """Returns when it was done."""
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
    return time.monotonic()


async def three_polls(reactor: Reactor) -> None:
    """Each would claim a job that may be claimed."""
    polls = reactor.counts.polls
    await until(lambda: reactor.counts.polls >= polls + 3)


@pytest.mark.parametrize("kind", ["work", "thread"])
async def test_a_cancel_reaches_the_handler_by_notification(
    reactor: Reactor, work: Work, connection: Connection, row: Row, events: Events, kind: str
) -> None:
    """F6: within 100 ms, an async handler as CancelledError and a thread at its next call; the best of twenty, since
    the machine may be busy. The next heartbeat would come after 15 s."""
    times: list[float] = []
    while not times or (min(times) >= 0.1 and len(times) < 20):
        job_id = await insert(connection, kind)
        await until(lambda job_id=job_id: job_id in work.began)
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
    await until(lambda: first in work.began)
    second = await insert(connection, "work", scope="s")
    await cancel(connection, first)
    await until(lambda: first in work.cancelled)
    assert (await row(first))["worker_id"] is not None
    await three_polls(reactor)
    assert second not in work.began
    work.let_go.set()
    await until(lambda: second in work.began)
    assert work.ended[0] == first
    assert (await row(first))["state"] == "cancelled"


async def test_a_job_taken_without_a_notification_is_found_by_reconciliation(
    database: str, work: Work, connection: Connection, row: Row
) -> None:
    """D5: another worker has the row, and no notification was sent: the next reconciliation stops the handler."""
    async with Reactor(database, registry=work.registry, heartbeat_seconds=0.3) as reactor:
        job_id = await insert(connection)
        await until(lambda: job_id in work.began)
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


async def test_claims_whose_client_is_gone_are_given_back(
    database: str, work: Work, connection: Connection, running: Running
) -> None:
    """Guarantee 1: a claim may commit although its answer is lost; 200 times, at every moment of it."""
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
        assert not work.began


async def test_while_draining_nothing_new_is_run_and_nothing_is_lost(
    reactor: Reactor, work: Work, connection: Connection, row: Row
) -> None:
    running = await insert(connection)
    await until(lambda: running in work.began)
    await connection.execute("update reactor.settings set draining = true")
    waiting = await insert(connection)
    work.let_go.set()
    await until(lambda: running in work.ended)
    await three_polls(reactor)
    assert (await row(waiting))["state"] == "pending"
    await connection.execute("update reactor.settings set draining = false")
    await until(lambda: waiting in work.ended)


async def test_a_paused_queue_rests_and_goes_on(reactor: Reactor, work: Work, connection: Connection, row: Row) -> None:
    await connection.execute("insert into reactor.queues (name, paused) values ('slow', true)")
    paused = await insert(connection, queue="slow")
    other = await insert(connection)
    await until(lambda: other in work.began)
    await three_polls(reactor)
    assert (await row(paused))["state"] == "pending"
    await connection.execute("update reactor.queues set paused = false")
    await until(lambda: paused in work.began)


async def test_a_queues_limit_holds_over_all_pods(
    database: str, reactor: Reactor, work: Work, connection: Connection
) -> None:
    await connection.execute("insert into reactor.queues (name, max_running) values ('narrow', 2)")
    async with Reactor(database, registry=work.registry, poll_seconds=0.1, grace_seconds=0) as other:
        jobs = [await insert(connection, queue="narrow") for _ in range(6)]
        await until(lambda: len(work.began) == 2)
        await three_polls(other)
        assert len(work.began) == 2
        work.let_go.set()
        await until(lambda: sorted(work.ended) == jobs)
