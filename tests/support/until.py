"""Waits for a condition, with a deadline."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[..., Any], within_seconds: float = 20) -> Any:
    """Calls a plain or async function until what it returns is true, and returns that."""
    deadline, pause = time.monotonic() + within_seconds, 0.01
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, "the condition was not met in time"
        await asyncio.sleep(pause)
        # Polling often would starve the processes that the test waits for.
        pause = min(pause * 1.2, 0.05)


def wait_until(condition: Callable[[], Any], within_seconds: float = 30) -> None:
    """`until` for tests without an event loop."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)
