"""A function in a thread ends as it would have ended here, and is not forgotten before."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from reactor.concurrency import in_thread


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def test_a_stop_iteration_ends_it(executor: ThreadPoolExecutor) -> None:
    """`next()` on nothing: a future can't hold that exception, and nobody would ever have heard of the end."""
    nothing: Iterator[int] = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(5):
            await in_thread(executor, lambda: next(nothing), lambda: True)


async def test_it_is_waited_for_although_the_task_was_cancelled(executor: ThreadPoolExecutor) -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(in_thread(executor, lambda: may_end.wait(10), lambda: False))
    await asyncio.sleep(0)
    waiting.cancel()
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    may_end.set()
    assert await waiting


async def test_once_given_up_it_is_not_waited_for(executor: ThreadPoolExecutor) -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(in_thread(executor, lambda: may_end.wait(10), lambda: True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    may_end.set()


async def test_it_sees_the_context_of_its_caller(executor: ThreadPoolExecutor) -> None:
    name = contextvars.ContextVar[str]("name")
    name.set("mine")
    assert await in_thread(executor, name.get, lambda: False) == "mine"
