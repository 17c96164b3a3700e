"""Answers that are kept for a moment."""

import asyncio

import pytest

from reactor_http.cache import Recent


async def test_however_many_ask_at_once_it_is_found_once() -> None:
    found = 0

    async def find() -> int:
        nonlocal found
        await asyncio.sleep(0)
        found += 1
        return found

    recent = Recent[int](seconds=60)
    assert await asyncio.gather(*(recent.get(find) for _ in range(50))) == [1] * 50


async def test_it_is_found_anew_when_its_time_is_over() -> None:
    found = iter(range(10))

    async def find() -> int:
        return next(found)

    recent = Recent[int](seconds=0)
    assert [await recent.get(find) for _ in range(3)] == [0, 1, 2]


async def test_a_failure_is_not_kept() -> None:
    async def fail() -> int:
        raise ValueError

    async def find() -> int:
        return 1

    recent = Recent[int](seconds=60)
    with pytest.raises(ValueError):  # noqa: PT011
        await recent.get(fail)
    assert await recent.get(find) == 1


async def test_who_gives_up_does_not_take_the_others_answer_with_them() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def find() -> int:
        asked.set()
        await go.wait()
        return 1

    recent = Recent[int](seconds=60)
    first = asyncio.create_task(recent.get(find))
    await asked.wait()
    second = asyncio.create_task(recent.get(find))
    first.cancel()
    go.set()
    assert await second == 1
