"""The database's clock, by which all pods agree on when a stream token expires."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from reactor.database import statements
from reactor.database.connection import Connection
from reactor_http.cache import CachedValue
from reactor_http.problem import Problem

_SYNC_SECONDS = 60.0


class DatabaseClock:
    """Queries the database once a minute and adds the time that has passed on this machine's monotonic clock."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]], timeout_seconds: float) -> None:
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._offset = CachedValue[float](_SYNC_SECONDS)

    async def now(self) -> float:
        """In seconds since 1970."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                offset = await self._offset.get(self._measure)
        except TimeoutError:
            detail = f"The database did not respond within {self._timeout_seconds:g} s."
            raise Problem(503, detail, "Try again in a moment.", headers={"Retry-After": "2"}) from None
        return offset + time.monotonic()

    async def _measure(self) -> float:
        async with self._connect() as connection:
            now = await connection.fetchval(statements.CLOCK)
        return float(now.timestamp()) - time.monotonic()
