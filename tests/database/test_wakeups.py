"""Wake-ups: their reasons and times, and that none is lost."""

import asyncio
from typing import Any

import pytest

from reactor.database.wakeups import NEVER, Reason, Timings, Wakeups

SOON = 20
"""Seconds that a busy machine may take."""


async def next_of(wakeups: Wakeups) -> Reason:
    async with asyncio.timeout(SOON):
        return await wakeups.next()


async def is_silent(wakeups: Wakeups) -> bool:
    """Whether it does not return within a few passes of the event loop."""
    waiting = asyncio.create_task(wakeups.next())
    for _ in range(5):
        await asyncio.sleep(0)
    waiting.cancel()
    (result,) = await asyncio.gather(waiting, return_exceptions=True)
    return isinstance(result, asyncio.CancelledError)


async def test_nothing_wakes_without_a_reason() -> None:
    assert await is_silent(Wakeups(Timings()))


async def test_a_notification_is_taken_once() -> None:
    wakeups = Wakeups(Timings())
    wakeups.notify()
    wakeups.notify()
    assert await next_of(wakeups) is Reason.NOTIFIED
    assert await is_silent(wakeups)


async def test_a_notification_wakes_a_waiting_task() -> None:
    wakeups = Wakeups(Timings())
    waiting = asyncio.create_task(next_of(wakeups))
    await asyncio.sleep(0)
    wakeups.notify()
    assert await waiting is Reason.NOTIFIED


async def test_a_notification_during_the_read_causes_another() -> None:
    """The first was taken before the read, so it does not cover later rows."""
    wakeups, reads = Wakeups(Timings()), 0
    wakeups.notify()
    async with asyncio.timeout(SOON):
        while reads < 2:
            assert await wakeups.next() is Reason.NOTIFIED
            reads += 1
            if reads == 1:
                wakeups.notify()  # as the listener does, during the statement
                await asyncio.sleep(0)
    assert await is_silent(wakeups)


async def test_rechecks_follow_a_notification() -> None:
    """A transaction that commits later sends no notification if another one was sent a moment ago."""
    wakeups = Wakeups(Timings(recheck_seconds=(0.01, 0.05)))
    wakeups.notify()
    assert await next_of(wakeups) is Reason.NOTIFIED
    rechecks = 0
    while wakeups.is_rechecking:  # on a slow machine both may be due at once
        assert await next_of(wakeups) is Reason.RECHECK
        rechecks += 1
    assert 1 <= rechecks <= 2
    assert wakeups.is_quiet
    assert await is_silent(wakeups)


async def test_another_notification_starts_the_rechecks_again() -> None:
    wakeups = Wakeups(Timings(recheck_seconds=(0.01,)))
    for _ in range(2):
        wakeups.notify()
        assert not wakeups.is_quiet
        assert await next_of(wakeups) is Reason.NOTIFIED
        assert wakeups.is_rechecking
    assert await next_of(wakeups) is Reason.RECHECK


async def test_polls_repeat_without_notifications() -> None:
    wakeups = Wakeups(Timings(poll_seconds=0.02))
    for _ in range(3):
        assert await next_of(wakeups) is Reason.POLLED


async def test_a_due_time_wakes_and_can_be_brought_forward() -> None:
    due = NEVER
    wakeups = Wakeups(Timings(), due_at=lambda: due)
    waiting = asyncio.create_task(next_of(wakeups))
    await asyncio.sleep(0)
    due = asyncio.get_running_loop().time() + 0.02
    wakeups.check()
    assert await waiting is Reason.DUE
    assert asyncio.get_running_loop().time() >= due


async def test_a_notification_that_comes_too_early_is_kept_until_its_time() -> None:
    """No free slot, or a feed that was read a moment ago."""
    earliest = NEVER
    wakeups = Wakeups(Timings(recheck_seconds=(0.01,)), not_before=lambda: earliest)
    wakeups.notify()
    assert await is_silent(wakeups)
    waiting = asyncio.create_task(next_of(wakeups))
    await asyncio.sleep(0)
    earliest = asyncio.get_running_loop().time() + 0.02
    wakeups.check()
    assert await waiting is Reason.NOTIFIED
    assert asyncio.get_running_loop().time() >= earliest


async def test_simultaneous_reasons_are_taken_together() -> None:
    wakeups = Wakeups(Timings(poll_seconds=0.001), due_at=lambda: 0.0)
    assert Reason.DUE in await next_of(wakeups)  # the poll's clock runs from here
    await asyncio.sleep(0.005)  # until the next poll is due
    wakeups.notify()
    assert await next_of(wakeups) == Reason.NOTIFIED | Reason.POLLED | Reason.DUE


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_stop_ends_the_wait_and_comes_before_every_other_reason(is_waiting: bool) -> None:
    wakeups: Any = Wakeups(Timings())
    waiting = asyncio.create_task(next_of(wakeups)) if is_waiting else None
    await asyncio.sleep(0)
    wakeups.notify()
    wakeups.stop()
    assert await (waiting or next_of(wakeups)) is Reason.STOPPED
    assert await next_of(wakeups) is Reason.STOPPED


async def test_a_cancelled_wait_keeps_the_notification() -> None:
    wakeups = Wakeups(Timings())
    waiting = asyncio.create_task(wakeups.next())
    await asyncio.sleep(0)
    wakeups.notify()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await next_of(wakeups) is Reason.NOTIFIED
