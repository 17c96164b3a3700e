"""Caches a value that is expensive to compute and often requested."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class CachedValue(Generic[Value]):
    """Concurrent callers share one computation. Failures are not cached."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._entry: tuple[float, Value] | None = None

    async def get(self, compute: Callable[[], Awaitable[Value]]) -> Value:
        async with self._lock:
            if self._entry is None or self._entry[0] <= time.monotonic():
                value = await compute()
                # Counted from its completion: a value that took long to compute is kept just as long.
                self._entry = time.monotonic() + self._seconds, value
            return self._entry[1]
