"""Cached values: shared computations, expiry and failures."""

import asyncio

import pytest

from reactor_http.cache import CachedValue


async def test_concurrent_callers_share_one_computation() -> None:
    computed = 0

    async def compute() -> int:
        nonlocal computed
        await asyncio.sleep(0)
        computed += 1
        return computed

    cached = CachedValue[int](seconds=60)
    assert await asyncio.gather(*(cached.get(compute) for _ in range(50))) == [1] * 50


async def test_an_expired_value_is_computed_again() -> None:
    computed = iter(range(10))

    async def compute() -> int:
        return next(computed)

    cached = CachedValue[int](seconds=0)
    assert [await cached.get(compute) for _ in range(3)] == [0, 1, 2]


async def test_a_failure_is_not_cached() -> None:
    async def fail() -> int:
        raise ValueError

    async def compute() -> int:
        return 1

    cached = CachedValue[int](seconds=60)
    with pytest.raises(ValueError):  # noqa: PT011
        await cached.get(fail)
    assert await cached.get(compute) == 1


async def test_cancelling_one_caller_does_not_affect_the_others() -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def compute() -> int:
        started.set()
        await finish.wait()
        return 1

    cached = CachedValue[int](seconds=60)
    first = asyncio.create_task(cached.get(compute))
    await started.wait()
    second = asyncio.create_task(cached.get(compute))
    first.cancel()
    finish.set()
    assert await second == 1
