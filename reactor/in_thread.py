"""Calls a function in a thread and waits for its real end: one that runs on is not forgotten before it is given up."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

Answer = TypeVar("Answer")


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
