"""The number of jobs per claim depends on the speed of handlers."""

import asyncio
from typing import Any

import pytest

from reactor.counts import Counts
from reactor.worker.claim_ahead import ClaimAhead


class FewSlots:
    free = 2


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The event loop's clock, as a list of one."""
    clock = [1000.0]

    class Loop:
        def time(self) -> float:
            return clock[0]

    monkeypatch.setattr(asyncio, "get_running_loop", Loop)
    return clock


def ahead_of(max_jobs: int | None = None) -> tuple[Any, Any, Counts]:
    slots: Any = FewSlots()
    counts = Counts()
    return ClaimAhead(slots, counts, max_jobs), slots, counts


def test_slow_handlers_get_a_job_per_free_slot(now: list[float]) -> None:
    ahead, slots, _ = ahead_of()
    assert (ahead.limit(), ahead.is_worthwhile()) == (2, True)
    slots.free = 0
    assert not ahead.is_worthwhile()
    assert not ahead.is_worthwhile_again()
    slots.free = 1
    assert ahead.is_worthwhile_again()


def test_fast_handlers_get_jobs_ahead_and_share_claims(now: list[float]) -> None:
    ahead, slots, counts = ahead_of()
    for _ in range(3):
        now[0] += 0.1
        counts.ended += 400
        ahead.claimed(400)
    assert 100 <= ahead.limit() - slots.free <= 200, "50 ms of 4,000 jobs a second"
    slots.free = -190
    assert not ahead.is_worthwhile(), "enough is waiting"
    slots.free = 0
    assert ahead.is_worthwhile_again()
    now[0] += 10
    assert ahead.limit() == 1, "they have become slow: 400 in ten seconds"


def test_more_is_claimed_ahead_where_claims_take_long(now: list[float]) -> None:
    """Slots must not be idle while a claim is on its way."""
    limits = {}
    for seconds in (0.001, 0.1, 2.0):
        ahead, slots, counts = ahead_of()
        for _ in range(10):
            now[0] += 0.1
            counts.ended += 20
            ahead.claimed(20, seconds)
        limits[seconds] = ahead.limit() - slots.free
    assert 10 <= limits[0.001] <= 20 < 40 <= limits[0.1] <= 60 < limits[2.0] <= 200, limits


def test_a_limited_number_of_jobs_is_not_exceeded(now: list[float]) -> None:
    ahead, _, _ = ahead_of(max_jobs=3)
    assert ahead.limit() == 2
    ahead.claimed(2)
    assert (ahead.limit(), ahead.is_used_up) == (1, False)
    ahead.claimed(1)
    assert (ahead.limit(), ahead.is_used_up) == (0, True)


def test_nothing_is_claimed_ahead_while_a_limit_is_reached(now: list[float]) -> None:
    """It would take a place in the limit without running."""
    ahead, slots, counts = ahead_of()
    for _ in range(3):
        now[0] += 0.1
        counts.ended += 400
        ahead.claimed(400)
    assert ahead.limit() > slots.free
    ahead.is_limited = True
    assert ahead.limit() == slots.free
    slots.free = 0
    assert not ahead.is_worthwhile()
