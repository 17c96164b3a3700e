"""The phases of an attempt, and what its context can do in each."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import cast
from uuid import uuid4

import pytest

from reactor import Cancelled, Context, Job, JobState, Registry
from reactor.database.connection import Connection, connect
from reactor.handlers.attempt import Attempt, Phase, Stop
from reactor.handlers.children import ChildOptions
from reactor.handlers.services import Services
from reactor.pod.in_process import Reactor
from tests.support.jobs import Row
from tests.support.until import until


@pytest.fixture
def attempt() -> Attempt:
    """An attempt without a database, which these tests don't need."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(1, "work", {}, uuid4(), None, "default", 0, [], None, uuid4(), 1, 3, None, now, now, now)
    return Attempt(job, cast(Services, None))


@pytest.mark.parametrize(
    ("before", "after"), [(Phase.RUNNING, Phase.ABANDONED), (Phase.CLOSING, Phase.CLOSING), (Phase.ENDED, Phase.ENDED)]
)
def test_only_a_handler_that_runs_is_abandoned(attempt: Attempt, before: Phase, after: Phase) -> None:
    attempt.phase = before
    attempt.abandon()
    assert attempt.phase is after


@pytest.mark.parametrize(
    ("phase", "can_be"),
    [
        (Phase.READY, False),  # its coroutine has not started
        (Phase.RUNNING, True),
        (Phase.ABANDONED, True),
        (Phase.CLOSING, False),  # its end is being written
        (Phase.ENDED, False),
    ],
)
def test_only_a_handler_that_runs_is_cancelled(attempt: Attempt, phase: Phase, can_be: bool) -> None:
    attempt.phase = phase
    assert attempt.can_be_cancelled is can_be


def test_an_attempt_that_must_stop_says_why(attempt: Attempt) -> None:
    attempt.stop_because = Stop.TAKEN
    with pytest.raises(Cancelled, match="cancelled, or taken"):
        attempt.check()


def test_an_attempt_whose_job_the_database_does_not_list_must_stop(attempt: Attempt) -> None:
    attempt.phase = Phase.RUNNING
    attempt.check_held(True)
    with pytest.raises(Cancelled, match="taken from this attempt"):
        attempt.check_held(False)
    assert attempt.is_stopping
    # A later stop still cancels a handler that ignores this one.
    assert attempt.stop_because is None


def test_a_repeated_call_shares_nothing_with_the_first(attempt: Attempt) -> None:
    attempt.phase = Phase.RUNNING
    attempt.unit_of_work.chain("child", None, ChildOptions((), (), (), {}))
    second = attempt.repeat()
    assert (attempt.phase, second.phase) == (Phase.ENDED, Phase.READY)
    with pytest.raises(Cancelled, match="has ended"):
        attempt.check()
    second.check()
    assert second.unit_of_work.children is None
    assert attempt.unit_of_work.children is not None


def test_a_repeated_call_knows_why_it_must_stop(attempt: Attempt) -> None:
    attempt.stop_because = Stop.SHUTDOWN
    assert attempt.repeat().stop_because is Stop.SHUTDOWN


async def test_a_shutdown_does_not_interrupt_a_commit(
    database: str, connection: Connection, row: Row, registry: Registry
) -> None:
    """The commit waits for a lock when the handlers are interrupted; it still ends the job."""
    await connection.execute(
        "create table ledger (entry text);"
        "create function wait_at_commit() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock(1); return null; end $$;"
        "create constraint trigger wait_at_commit after insert on ledger deferrable initially deferred "
        "for each row execute function wait_at_commit()"
    )
    calls: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        calls.append(job.id)
        async with ctx.transaction() as session:
            await session.execute("insert into ledger values ('data')")

    async def is_committing() -> bool:
        return bool(
            await connection.fetchval(
                "select exists (select from pg_stat_activity where datname = current_database() "
                "and application_name like 'reactor handlers%' and wait_event = 'advisory')"
            )
        )

    async with connect(database, name="operator") as operator, AsyncExitStack() as stack:
        lock = operator.transaction()
        await lock.start()
        await operator.execute("select pg_advisory_xact_lock(1)")
        reactor = await stack.enter_async_context(Reactor(database, registry=registry, grace_seconds=0))
        job_id = await connection.fetchval("insert into reactor.jobs (job_type) values ('work') returning id")
        await until(is_committing)
        leaving = asyncio.create_task(stack.aclose())
        await asyncio.sleep(0.2)  # it interrupts its handlers immediately, and waits a second for them
        await lock.rollback()
        await leaving
    assert (await row(job_id))["state"] == "completed"
    assert reactor.counts.states == {JobState.COMPLETED: 1}, "the worker knows of its commit"
    assert await connection.fetchval("select count(*) from ledger") == len(calls) == 1
