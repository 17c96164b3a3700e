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
        except StopIteration as error:
            # A future can't hold it, and would never be done.
            raise RuntimeError("The function raised StopIteration.") from error

    future = asyncio.get_running_loop().run_in_executor(executor, call)
    while True:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.done() or is_given_up():
                raise
