"""Waits that asyncio lacks: for the first of several, and for the real end of a thread."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Returns when one of them has ended; coroutines that have not are cancelled, tasks go on."""
    given = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(given, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future, awaitable in zip(given, awaitables, strict=True):
            if future is not awaitable:
                future.cancel()


async def in_thread(executor: Executor, function: Callable[[], Answer], is_given_up: Callable[[], bool]) -> Answer:
    """Waits also when the task was told to stop."""
    carrier = contextvars.copy_context()

    def call() -> Answer:
        try:
            return carrier.run(function)
        except (StopIteration, GeneratorExit) as error:
            # A future can't carry these: nobody would ever be told that the thread has ended.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error

    future = asyncio.get_running_loop().run_in_executor(executor, call)
    while True:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.done() or is_given_up():
                raise
