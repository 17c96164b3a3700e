"""Backoff: the time between a failed attempt and the next."""

import asyncio
from datetime import timedelta

import pytest

from reactor.client.submit import submit
from reactor.database.connection import Connection
from reactor.handlers.backoff import exponential, fixed
from reactor.handlers.registry import Registry
from reactor.testing import run_until_idle

ERROR = ValueError("boom")


def test_waits_double_and_stop_at_the_limit() -> None:
    wait = exponential(2, limit_seconds=30, chance=lambda: 1.0)
    assert [wait(attempt, ERROR) for attempt in range(1, 8)] == [2, 4, 8, 16, 30, 30, 30]


def test_a_wait_is_shortened_at_random_by_up_to_half() -> None:
    draws = iter([0.0, 0.5, 1.0])
    wait = exponential(8, chance=lambda: next(draws))
    assert [wait(1, ERROR) for _ in range(3)] == [4, 6, 8]


def test_jobs_that_failed_together_spread() -> None:
    wait = exponential()
    assert len({wait(5, ERROR) for _ in range(50)}) > 40


def test_the_millionth_attempt_waits_as_long_as_the_limit() -> None:
    assert exponential(factor=10, chance=lambda: 1.0)(1_000_000, ERROR) == 3600


@pytest.mark.parametrize("delay", [5, 5.0, timedelta(seconds=5)])
def test_a_fixed_wait_stays_the_same(delay: float | timedelta) -> None:
    assert [fixed(delay)(attempt, ERROR) for attempt in (1, 2, 100)] == [5, 5, 5]


async def test_a_policy_is_given_the_attempts_number_and_its_error(
    database: str, connection: Connection, registry: Registry
) -> None:
    asked: list[tuple[int, str]] = []

    def policy(attempt: int, error: BaseException) -> float:
        asked.append((attempt, str(error)))
        return 0

    @registry.register("work", max_attempts=3, backoff=policy)
    async def work() -> None:
        raise ERROR

    await submit(connection, "work")
    await run_until_idle(database, registry)
    assert asked == [(1, "boom"), (2, "boom"), (3, "boom")]


@pytest.mark.parametrize("delay", [600, timedelta(minutes=10), lambda *_: 600, lambda *_: timedelta(minutes=10)])
async def test_the_next_attempt_is_due_when_the_policy_says(
    database: str, connection: Connection, registry: Registry, delay: float
) -> None:
    @registry.register("work", backoff=delay)
    async def work() -> None:
        raise ERROR

    await submit(connection, "work")
    await run_until_idle(database, registry)
    wait = await connection.fetchval("select run_after - locked_at from reactor.jobs where state = 'pending'")
    assert timedelta(seconds=600) <= wait < timedelta(seconds=660)


@pytest.mark.parametrize(
    ("answer", "error"), [("soon", ERROR), (None, "timeout"), (ZeroDivisionError, "timeout"), ("soon", "cancelled")]
)
async def test_a_broken_policy_fails_its_job_and_no_other(
    database: str, connection: Connection, registry: Registry, answer: object, error: object
) -> None:
    """For every kind of failure: an error, a timeout, a cancellation by the handler itself."""

    def policy(attempt: int, error: BaseException) -> float:
        if answer is ZeroDivisionError:
            raise ZeroDivisionError
        return answer  # type: ignore[return-value]

    @registry.register("broken", backoff=policy, timeout_seconds=0.05)
    async def broken() -> None:
        if error == "timeout":
            await asyncio.Event().wait()
        elif error == "cancelled":
            raise asyncio.CancelledError
        raise ERROR

    @registry.register("plain")
    async def plain() -> None: ...

    await submit(connection, "broken")
    await submit(connection, "plain")
    async with asyncio.timeout(20):
        await run_until_idle(database, registry)
    rows = await connection.fetch("select job_type, state, error, attempts from reactor.jobs order by id")
    assert [(r["job_type"], r["state"], r["attempts"]) for r in rows] == [
        ("broken", "failed", 1),
        ("plain", "completed", 1),
    ]
    assert "its backoff failed" in rows[0]["error"]
