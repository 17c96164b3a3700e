"""Two waits that asyncio lacks: for the first of several awaitables, and for a thread to really end."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

Result = TypeVar("Result")


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Returns when one of them is done. The remaining coroutines are cancelled; tasks keep running."""
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future, awaitable in zip(futures, awaitables, strict=True):
            if future is not awaitable:
                future.cancel()


async def in_thread(executor: Executor, function: Callable[[], Result], is_abandoned: Callable[[], bool]) -> Result:
    """Runs `function` in a thread. A cancelled task waits for the thread too, unless it is abandoned."""
    context = contextvars.copy_context()

    def call() -> Result:
        try:
            return context.run(function)
        except (StopIteration, GeneratorExit) as error:
            # A future can't hold these exceptions and would never complete.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error

    future = asyncio.get_running_loop().run_in_executor(executor, call)
    while True:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.done() or is_abandoned():
                raise
