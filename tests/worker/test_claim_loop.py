"""The claim loop: wake-ups, claims during notifications, polls, stops, drains and limits."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactor import Job, Registry
from reactor.cli.worker import pod_options
from reactor.database.connection import Connection, connect
from reactor.database.listener import Listener
from reactor.database.listener import Timings as ListenerTimings
from reactor.embedded.locate import Location
from reactor.lifecycle.claim import Claimed, claim, claim_once
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending
from reactor.pod.in_process import Reactor
from reactor.settings import read_settings
from reactor.worker import claim_loop
from reactor.worker.claim_loop import ClaimLoop, Timings
from tests.support.claim_loops import Running
from tests.support.jobs import Row, has_ended, has_state, insert
from tests.support.logs import Events
from tests.support.pods import StartPod
from tests.support.sessions import waits_for_a_lock
from tests.support.until import until
from tests.support.work import Work, three_polls

Hook = Callable[[list[Job]], Awaitable[None]]


@pytest.fixture
def after_claims(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hook], None]:
    """Calls the hook after each claim that the database has committed, before the loop learns of it."""

    def install(hook: Hook) -> None:
        async def claim_and_call(*arguments: Any) -> Claimed:
            claimed = await claim_once(*arguments)
            await hook(claimed.jobs)
            return claimed

        monkeypatch.setattr(claim_loop, "claim_once", claim_and_call)

    return install


@pytest.fixture
async def producer(database: str) -> AsyncIterator[Connection]:
    async with connect(database, name="producer") as connection:
        yield connection


@pytest.fixture
def states(database: str, registry: Registry) -> list[str]:
    """The states that jobs have while their handler runs."""
    seen: list[str] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        async with connect(database, name="handler") as connection:
            seen.append(await connection.fetchval("select state from reactor.jobs where id = $1", job.id))

    return seen


async def test_a_notification_during_a_claim_triggers_another_claim(
    connection: Connection,
    producer: Connection,
    running: Running,
    row: Row,
    states: list[str],
    after_claims: Callable[[Hook], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guarantee 1, without polls and rechecks, which would find the job too."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))
    late: list[int] = []
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)

        async def insert_another(jobs: list[Job]) -> None:
            if jobs and not late:
                await asyncio.sleep(0.02)  # an insert notifies only if none has for 10 ms
                wakes = loop.counts.wakes
                late.append(await insert(producer))
                await until(lambda: loop.counts.wakes > wakes)

        after_claims(insert_another)
        await insert(connection)
        await until(lambda: late)
        await until(lambda: has_state(row, late[0], "completed"))
        await until(lambda: len(states) == 2)  # the handler of the first job may be slower
    assert states == ["running"] * 2


async def test_a_row_that_becomes_visible_after_the_claim_is_found_by_a_recheck(
    connection: Connection,
    producer: Connection,
    running: Running,
    row: Row,
    states: list[str],
    after_claims: Callable[[Hook], None],
) -> None:
    """Guarantee 1: its transaction sent no notification, since another one had a moment earlier."""
    late: list[int] = []
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)

        async def insert_silently(jobs: list[Job]) -> None:
            if jobs and not late:
                await asyncio.sleep(0.15)  # then the last check for scheduled jobs, which claims too, is over
                await producer.execute("set session_replication_role = replica")
                late.append(await insert(producer))
                await producer.execute("set session_replication_role = origin")

        after_claims(insert_silently)
        await insert(connection)
        await until(lambda: late)
        await until(lambda: has_state(row, late[0], "completed"))
        await until(lambda: len(states) == 2)
        assert loop.counts.polls == 0
    assert states == ["running"] * 2


async def test_a_reconciliation_does_not_release_what_is_being_claimed(
    database: str,
    connection: Connection,
    registry: Registry,
    running: Running,
    row: Row,
    after_claims: Callable[[Hook], None],
) -> None:
    """Guarantees 3 and 5: its handler would run while another pod may claim it."""
    reconciling: list[asyncio.Task[None]] = []
    held: list[bool] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        await asyncio.gather(*reconciling)
        async with connect(database, name="handler") as handlers:
            held.append(
                await handlers.fetchval(
                    "select attempt_id = $2 from reactor.jobs where id = $1", job.id, job.attempt_id
                )
            )

    async with running(reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)

        async def reconcile(jobs: list[Job]) -> None:
            if jobs and not reconciling:
                reconciling.append(asyncio.create_task(loop.reconciliation.reconcile()))
                await asyncio.wait(reconciling, timeout=0.3)  # it must wait for the claim

        after_claims(reconcile)
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "completed"))
    assert held == [True]


async def test_a_claim_loop_is_not_at_rest_while_it_claims(
    connection: Connection,
    running: Running,
    states: list[str],
    after_claims: Callable[[Hook], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even for the last recheck: a job that is inserted meanwhile is found without a notification."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=(0.05,)))
    rests: list[bool] = []
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:

        async def note(jobs: list[Job]) -> None:
            rests.append(loop.is_at_rest)

        await until(lambda: loop.is_at_rest)
        after_claims(note)
        await insert(connection)
        await until(lambda: len(rests) >= 2)
        await until(lambda: loop.is_at_rest)
    assert not any(rests)


async def test_a_stop_ends_a_sleeping_claim_loop(running: Running, states: list[str]) -> None:
    """Immediately, and not at the next poll."""
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)
        loop.stop()


async def test_a_claim_follows_each_connect_of_the_listener(
    producer: Connection, running: Running, row: Row, states: list[str]
) -> None:
    """Notifications sent while it was not connected did not arrive."""
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)
        await producer.execute("set session_replication_role = replica")
        job_id = await insert(producer)
        reconnects = loop.summary()["reconnects"]
        await producer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name like 'reactor listen%'"
        )
        await until(lambda: loop.summary()["reconnects"] > reconnects)
        await until(lambda: has_state(row, job_id, "completed"))


async def test_a_scheduled_job_without_a_notification_is_run(database: str, connection: Connection, row: Row) -> None:
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
        wakes = loop.counts.wakes
        await asyncio.sleep(0.05)  # an insert notifies only if none has for 10 ms
        last = await insert(connection)
        await until(lambda: loop.counts.wakes > wakes)
        await asyncio.sleep(0.1)  # for a claim that must not happen: it would use up the notification
        let_go.set()
        await until(lambda: has_state(row, last, "completed"))


async def test_jobs_claimed_during_a_stop_do_not_start(
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
        await until(lambda: waits_for_a_lock(connection, "reactor claim"))
        loop.interrupt()
        await lock.rollback()
    after = await row(job_id)
    assert (started, after["state"], after["attempts"]) == ([], "pending", 0)
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0


async def test_a_database_that_is_read_only_for_a_while_fails_no_job(
    database: str, connection: Connection, row: Row
) -> None:
    """As after a failover, when the address still leads to the old server."""
    registry = Registry()
    started: list[int] = []
    let_go = asyncio.Event()

    @registry.register("work", max_attempts=1)
    async def work(job: Job) -> None:
        started.append(job.id)
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
        assert started == [job_id]


async def test_jobs_end_if_repeatable_read_is_the_default(database: str, connection: Connection, row: Row) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    registry = Registry()
    started: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        started.append(job.id)

    async with Reactor(database, registry=registry, heartbeat_seconds=0.3, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_state(row, job_id, "completed"))
        assert started == [job_id]


async def test_while_draining_no_job_starts_and_none_is_lost(
    reactor: Reactor, work: Work, connection: Connection, row: Row
) -> None:
    running = await insert(connection)
    await until(lambda: running in work.started)
    await connection.execute("update reactor.settings set draining = true")
    waiting = await insert(connection)
    work.let_go.set()
    await until(lambda: running in work.ended)
    await three_polls(reactor)
    assert (await row(waiting))["state"] == "pending"
    await connection.execute("update reactor.settings set draining = false")
    await until(lambda: waiting in work.ended)


async def test_a_paused_queues_jobs_run_after_it_is_resumed(
    reactor: Reactor, work: Work, connection: Connection, row: Row
) -> None:
    await connection.execute("insert into reactor.queues (name, paused) values ('slow', true)")
    paused = await insert(connection, queue="slow")
    other = await insert(connection)
    await until(lambda: other in work.started)
    await three_polls(reactor)
    assert (await row(paused))["state"] == "pending"
    await connection.execute("update reactor.queues set paused = false")
    await until(lambda: paused in work.started)


async def test_two_pods_share_a_queues_limit(
    database: str, reactor: Reactor, work: Work, connection: Connection
) -> None:
    await connection.execute("insert into reactor.queues (name, max_running) values ('narrow', 2)")
    async with Reactor(database, registry=work.registry, poll_seconds=0.1, grace_seconds=0) as other:
        jobs = [await insert(connection, queue="narrow") for _ in range(6)]
        await until(lambda: len(work.started) == 2)
        await three_polls(other)
        assert len(work.started) == 2
        work.let_go.set()
        await until(lambda: sorted(work.ended) == jobs)


async def test_a_queue_takes_at_most_its_slots(database: str, work: Work, connection: Connection) -> None:
    async with Reactor(
        database, registry=work.registry, queues=["default:2", "mail"], concurrency=10, poll_seconds=0, grace_seconds=0
    ) as reactor:
        await until(lambda: reactor.is_well)
        jobs = [await insert(connection) for _ in range(5)]
        await until(lambda: len(work.started) == 2)
        other = [await insert(connection, queue="mail") for _ in range(3)]
        await until(lambda: len(work.started) == 5)
        assert set(work.started) == {*jobs[:2], *other}
        work.let_go.set()
        await until(lambda: sorted(work.ended) == sorted([*jobs, *other]))


async def test_a_worker_claims_what_the_end_of_its_own_job_made_room_for(
    connection: Connection, running: Running, states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: without polls, rechecks and notifications of other workers' ends."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=(), place_pause_seconds=(3600, 3600)))
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 1)")
    await connection.execute("insert into reactor.limits (job_type, max_running) values ('work', 2)")
    async with running(poll_seconds=0, reconcile_seconds=3600):
        jobs = [await insert(connection, lane=f"lane {n % 3}") for n in range(9)]
        await until(lambda: len(states) == len(jobs))


async def test_an_end_during_a_claim_that_does_not_see_it_causes_another_one(
    connection: Connection,
    running: Running,
    work: Work,
    after_claims: Callable[[Hook], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=(), place_pause_seconds=(3600, 3600)))
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        first = await insert(connection)
        await until(lambda: work.started == [first] and loop.is_at_rest)

        async def end_the_first(jobs: list[Job]) -> None:
            if not work.let_go.is_set():
                work.let_go.set()
                await until(lambda: not loop.slots.held)

        after_claims(end_the_first)
        async with connection.transaction():
            await connection.execute("insert into reactor.limits (job_type, max_running) values ('work', 1)")
            second = await insert(connection)
        await until(lambda: work.ended == [first, second])


async def test_a_slot_that_is_freed_during_a_claim_causes_another_one(
    connection: Connection,
    registry: Registry,
    running: Running,
    after_claims: Callable[[Hook], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The claim took as many jobs of the queue as there were slots when it began."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))
    started: list[int] = []
    let_first_go, let_others_go = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work(job: Job) -> None:
        started.append(job.id)
        await (let_first_go if len(started) == 1 else let_others_go).wait()

    async with running("default", slots={"default": 2}, poll_seconds=0, reconcile_seconds=3600) as loop:
        first = await insert(connection)
        await until(lambda: started == [first] and loop.is_at_rest)
        await asyncio.sleep(0.3)  # then the last check for scheduled jobs, which claims too, is over

        async def end_the_first(jobs: list[Job]) -> None:
            if jobs and not let_first_go.is_set():
                let_first_go.set()
                await until(lambda: not loop.slots.held)

        after_claims(end_the_first)
        async with connection.transaction():
            others = [await insert(connection) for _ in range(2)]
        await until(lambda: started == [first, *others])
        let_others_go.set()


@pytest.mark.parametrize("lane", ["", "*"])
async def test_a_claim_that_a_limit_stopped_short_is_not_ahead_of_free_slots(
    connection: Connection, running: Running, work: Work, lane: str
) -> None:
    await connection.execute("insert into reactor.limits (job_type, lane, max_running) values ('work', $1, 1)", lane)
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        jobs = [await insert(connection, lane="customer=17") for _ in range(2)]
        await until(lambda: work.started == jobs[:1] and loop.is_at_rest)
        assert loop.claim_ahead.is_limited
        work.let_go.set()
        await until(lambda: work.ended == jobs and not loop.claim_ahead.is_limited)


async def test_another_worker_claims_what_a_job_made_room_for_if_its_own_does_not(
    connection: Connection, running: Running, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own stops, and claims no more."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))
    await connection.execute("insert into reactor.limits (job_type, max_running) values ('work', 1)")
    async with running(poll_seconds=0, reconcile_seconds=3600) as first:
        jobs = [await insert(connection) for _ in range(2)]
        await until(lambda: work.started == jobs[:1])
        async with running(poll_seconds=0, reconcile_seconds=3600) as other:
            await until(lambda: other.is_at_rest)
            first.stop()
            work.let_go.set()
            await until(lambda: work.ended == jobs)


async def test_a_worker_looks_again_for_ends_that_are_not_notified(
    connection: Connection,
    worker: Worker,
    running: Running,
    work: Work,
    after_claims: Callable[[Hook], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another end was, a moment before. The worker that notified, and the one that ended the job, claim no more."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))
    await connection.execute("insert into reactor.limits (job_type, max_running) values ('work', 1)")
    await insert(connection)
    (held,) = await claim(connection, worker, 1)
    job_id = await insert(connection)
    ended: list[int] = []
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)

        async def end_silently(jobs: list[Job]) -> None:
            if not ended:
                ended.append(held.id)
                await connection.execute(
                    "select setval('reactor.places_notified_at', $1)", round(time.time() * 1e3) + 900
                )
                await settle(connection, [Ending(held.id, held.attempt_id, Completed())])

        after_claims(end_silently)
        await connection.execute("select reactor.notify_places()")
        await until(lambda: work.started == [job_id])
        work.let_go.set()


# Polls


POLL_SECONDS = 1000.0
"""Far longer than any test: the test advances the clock."""


@pytest.fixture
async def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Awaitable[None]]:
    """Advances the clock of the event loop, and lets everything that is due begin."""
    event_loop = asyncio.get_running_loop()
    clock, ahead = event_loop.time, 0.0
    monkeypatch.setattr(event_loop, "time", lambda: clock() + ahead)

    async def advance_by(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds
        for _ in range(5):
            await asyncio.sleep(0)

    return advance_by


@pytest.fixture
def polling(database: str, running: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A claim loop with the options of `reactor worker`, in which no other timer finds a job."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))
    monkeypatch.setattr(Listener, "timings", ListenerTimings(watch_seconds=1e6, answer_seconds=1e6))

    @asynccontextmanager
    async def polling(seconds: float = POLL_SECONDS, **options: Any) -> AsyncIterator[ClaimLoop]:
        settings = read_settings({"REACTOR_POLL_SECONDS": str(seconds)})
        chosen = pod_options(settings, Location(database, database), "app", pooled=False).worker
        async with running(poll_seconds=chosen.poll_seconds, reconcile_seconds=1e6, **options) as loop:
            await until(lambda: loop.is_at_rest)
            yield loop

    return polling


@pytest.fixture
async def silent(database: str) -> AsyncIterator[Connection]:
    """A producer whose inserts notify nobody."""
    async with connect(database, name="silent producer") as connection:
        await connection.execute("set session_replication_role = replica")
        yield connection


async def test_polls_come_at_the_interval_of_the_setting(
    silent: Connection, row: Row, work: Work, polling: Running, advance: Callable[[float], Awaitable[None]]
) -> None:
    """P5: nothing else finds a job that no notification announced."""
    work.let_go.set()
    async with polling() as loop:
        for polls in (1, 2):
            job_id = await insert(silent)
            await advance(0.9 * POLL_SECONDS)
            assert loop.counts.polls == polls - 1
            assert (await row(job_id))["state"] == "pending"
            await advance(0.1 * POLL_SECONDS)
            await until(lambda job_id=job_id: has_state(row, job_id, "completed"))
            assert (loop.counts.polls, loop.counts.missed_wakes) == (polls, polls)
            await until(lambda: loop.is_at_rest)


async def test_a_pod_polls_at_the_interval_of_its_setting(start_pod: StartPod, silent: Connection, row: Row) -> None:
    """P5: five polls of ten seconds, the default, would take longer."""
    pod = await start_pod(POLL_SECONDS=0.1)
    async with asyncio.timeout(35):
        while len(pod.events("a notification was missed")) < 5:
            job_id = await insert(silent, "noop")
            await until(lambda job_id=job_id: has_state(row, job_id, "completed"))


async def test_polls_can_be_off(
    connection: Connection,
    silent: Connection,
    row: Row,
    work: Work,
    polling: Running,
    advance: Callable[[float], Awaitable[None]],
) -> None:
    """P5"""
    work.let_go.set()
    async with polling(0) as loop:
        silently = await insert(silent)
        for _ in range(48):
            await advance(3600)
        assert loop.counts.polls == 0
        assert (await row(silently))["state"] == "pending"
        await insert(connection)
        await until(lambda: has_state(row, silently, "completed"))
        assert loop.counts.polls == 0


async def test_a_poll_passes_by_jobs_that_another_transaction_has_locked(
    connection: Connection,
    silent: Connection,
    row: Row,
    work: Work,
    polling: Running,
    advance: Callable[[float], Awaitable[None]],
) -> None:
    """P5"""
    work.let_go.set()
    async with polling() as loop:
        locked, free = await insert(silent), await insert(silent)
        async with connection.transaction():
            await connection.execute("select from reactor.jobs where id = $1 for update", locked)
            await advance(POLL_SECONDS)
            await until(lambda: work.ended == [free])
            await until(lambda: loop.is_at_rest)
        await advance(POLL_SECONDS)
        await until(lambda: work.ended == [free, locked])
        assert loop.counts.missed_wakes == 2


async def test_a_poll_takes_no_more_jobs_than_there_are_free_slots(
    connection: Connection,
    silent: Connection,
    work: Work,
    polling: Running,
    advance: Callable[[float], Awaitable[None]],
) -> None:
    """P5"""
    in_state = "select count(*) from reactor.jobs where state = $1"
    async with polling(concurrency=3) as loop:
        await insert(connection)
        await until(lambda: len(work.started) == 1)
        await advance(1)  # a notification is followed by a look at the scheduled jobs
        await until(lambda: loop.is_at_rest)
        for _ in range(5):
            await insert(silent)
        await advance(POLL_SECONDS)
        await until(lambda: len(work.started) == 3)
        assert loop.counts.missed_wakes == 1
        for _ in range(3):
            await advance(POLL_SECONDS)
        assert [await connection.fetchval(in_state, state) for state in ("running", "pending")] == [3, 3]
        work.let_go.set()
        await until(lambda: len(work.ended) == 6)


FAILURES = {
    "the server refuses the claim": (
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'no claims today'; end $$;"
        "create trigger refuse before update on reactor.jobs for each row when (new.state = 'running')"
        " execute function refuse()",
        "drop trigger refuse on reactor.jobs",
    ),
    "a function is missing": (
        "alter function reactor.claim rename to claim_of_yesterday",
        "alter function reactor.claim_of_yesterday rename to claim",
    ),
}


@pytest.mark.parametrize(("fault", "repair"), FAILURES.values(), ids=FAILURES)
async def test_a_poll_that_fails_is_followed_by_one_that_claims(
    connection: Connection,
    silent: Connection,
    work: Work,
    polling: Running,
    advance: Callable[[float], Awaitable[None]],
    events: Events,
    fault: str,
    repair: str,
) -> None:
    """P5: its own errors don't end the poller."""
    work.let_go.set()
    async with polling() as loop:
        await connection.execute(fault)
        job_id = await insert(silent)
        await advance(POLL_SECONDS)
        await until(lambda: [event for event in events if event["event"] == "claim loop error"])
        assert (loop.counts.polls, work.started) == (1, [])
        await connection.execute(repair)
        await advance(POLL_SECONDS)
        await until(lambda: work.ended == [job_id])
        await until(lambda: loop.is_at_rest)
        later, polls = await insert(silent), loop.counts.polls
        await advance(POLL_SECONDS)
        await until(lambda: work.ended == [job_id, later])
        assert loop.counts.polls == polls + 1
