"""in_thread: exceptions, cancellation and context of a function in a thread."""

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


async def test_a_stop_iteration_in_a_thread_becomes_a_runtime_error(executor: ThreadPoolExecutor) -> None:
    """A future can't hold StopIteration and would never complete."""
    nothing: Iterator[int] = iter(())
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(5):
            await in_thread(executor, lambda: next(nothing), lambda: True)


async def test_a_cancelled_task_waits_for_its_thread(executor: ThreadPoolExecutor) -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(in_thread(executor, lambda: may_end.wait(10), lambda: False))
    await asyncio.sleep(0)
    waiting.cancel()
    assert not (await asyncio.wait([waiting], timeout=0.05))[0]
    may_end.set()
    assert await waiting


async def test_an_abandoned_thread_is_not_waited_for(executor: ThreadPoolExecutor) -> None:
    may_end = threading.Event()
    waiting = asyncio.create_task(in_thread(executor, lambda: may_end.wait(10), lambda: True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    may_end.set()


async def test_a_thread_sees_the_context_of_its_caller(executor: ThreadPoolExecutor) -> None:
    name = contextvars.ContextVar[str]("name")
    name.set("mine")
    assert await in_thread(executor, name.get, lambda: False) == "mine"
