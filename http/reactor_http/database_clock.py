"""The database's clock, by which all pods agree on when something ends."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from reactor.database import statements
from reactor.database.connection import Connection
from reactor_http.cache import Recent
from reactor_http.problem import Problem

_ASK_SECONDS = 60.0
_ANSWER_SECONDS = 5.0


class DatabaseClock:
    """Asked once a minute; in between this machine's steady clock, which nobody can set, tells how much has passed."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect
        self._difference = Recent[float](_ASK_SECONDS)

    async def now(self) -> float:
        """In seconds since 1970."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                difference = await self._difference.get(self._measure)
        except TimeoutError:
            detail = f"The database has not answered within {_ANSWER_SECONDS:g} s."
            raise Problem(503, detail, "Try again in a moment.", headers={"Retry-After": "2"}) from None
        return difference + time.monotonic()

    async def _measure(self) -> float:
        async with self._connect() as connection:
            now = await connection.fetchval(statements.CLOCK)
        return float(now.timestamp()) - time.monotonic()
