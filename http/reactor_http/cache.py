"""An answer that many ask for and that is dear to find, kept for a moment."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Recent(Generic[Answer]):
    """However many ask at once, one of them finds it, and the others wait for that. What failed is not kept."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._answer: tuple[float, Answer] | None = None

    async def get(self, find: Callable[[], Awaitable[Answer]]) -> Answer:
        async with self._lock:
            if self._answer is None or self._answer[0] <= time.monotonic():
                answer = await find()
                # Counted from when it is there: one that took long is kept no shorter for it.
                self._answer = time.monotonic() + self._seconds, answer
            return self._answer[1]
