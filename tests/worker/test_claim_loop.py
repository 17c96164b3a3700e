"""The claim loop: what wakes it, and that nothing is missed while it is busy."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from reactor import Job, Registry
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.worker import claim_loop
from reactor.worker.claim_loop import ClaimLoop, Timings

Row = Callable[[int], Awaitable[dict[str, Any]]]
Until = Callable[..., Awaitable[Any]]
Running = Callable[..., AbstractAsyncContextManager[ClaimLoop]]
Hook = Callable[[list[Job]], Awaitable[None]]


@pytest.fixture
def after_claims(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hook], None]:
    """Calls the hook after each claim that the database has committed, before the loop learns of it."""

    def install(hook: Hook) -> None:
        async def claim_and_call(*arguments: Any) -> list[Job]:
            jobs = await claim(*arguments)
            await hook(jobs)
            return jobs

        monkeypatch.setattr(claim_loop, "claim", claim_and_call)

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


async def insert(connection: Connection) -> int:
    job_id: int = await connection.fetchval("insert into reactor.jobs (job_type) values ('work') returning id")
    return job_id


async def is_completed(row: Row, job_id: int) -> bool:
    return bool((await row(job_id))["state"] == "completed")


async def test_a_notification_during_a_claim_triggers_another_claim(
    connection: Connection,
    producer: Connection,
    running: Running,
    row: Row,
    until: Until,
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
                await asyncio.sleep(0.02)  # the notification of the first job silences others for 10 ms
                heard = loop.counts.wakes
                late.append(await insert(producer))
                await until(lambda: loop.counts.wakes > heard)

        after_claims(insert_another)
        await insert(connection)
        await until(lambda: late)
        await until(lambda: is_completed(row, late[0]))
    assert states == ["running"] * 2


async def test_a_row_that_becomes_visible_after_the_claim_is_found_by_a_recheck(
    connection: Connection,
    producer: Connection,
    running: Running,
    row: Row,
    until: Until,
    states: list[str],
    after_claims: Callable[[Hook], None],
) -> None:
    """Guarantee 1: its transaction sent no notification, since another one had a moment earlier."""
    late: list[int] = []
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)

        async def insert_silently(jobs: list[Job]) -> None:
            if jobs and not late:
                await asyncio.sleep(0.15)  # then the last check for scheduled jobs, which claims too, is long over
                await producer.execute("set session_replication_role = replica")
                late.append(await insert(producer))
                await producer.execute("set session_replication_role = origin")

        after_claims(insert_silently)
        await insert(connection)
        await until(lambda: late)
        await until(lambda: is_completed(row, late[0]))
        assert loop.counts.polls == 0
    assert states == ["running"] * 2


async def test_a_reconciliation_does_not_release_what_is_being_claimed(
    database: str,
    connection: Connection,
    registry: Registry,
    running: Running,
    row: Row,
    until: Until,
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
                await asyncio.wait(reconciling, timeout=0.3)  # it waits for us, as it should

        after_claims(reconcile)
        job_id = await insert(connection)
        await until(lambda: is_completed(row, job_id))
    assert held == [True]


async def test_it_is_not_at_rest_while_it_claims(
    connection: Connection,
    running: Running,
    until: Until,
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


async def test_a_stop_while_it_sleeps_ends_it(running: Running, states: list[str], until: Until) -> None:
    """At once, and not when it would have polled."""
    async with running(poll_seconds=0, reconcile_seconds=3600) as loop:
        await until(lambda: loop.is_at_rest)
        loop.stop()


async def test_a_listener_that_connects_makes_it_look(
    producer: Connection, running: Running, row: Row, until: Until, states: list[str]
) -> None:
    """Notifications that were sent while it was not listening did not arrive."""
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
        await until(lambda: is_completed(row, job_id))
