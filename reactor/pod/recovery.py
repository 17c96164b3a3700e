"""Repeats the release of what an exited worker held, until it is written or there is no time left."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg

from reactor.concurrency import first_of
from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.errors import ReactorError
from reactor.log import get_logger

log = get_logger(__name__)
Answer = TypeVar("Answer")


class Recovery:
    """Waits for a database that is away, but not past the deadline of a shutdown: then the lease has to expire."""

    def __init__(self, url: str, pod: str, deadline: Callable[[], Awaitable[None]], *, prepares: bool) -> None:
        """`deadline`: returns when there is no time left."""
        self.is_incomplete = False
        """Something was not written in time: jobs stay claimed until their worker's lease expires."""
        self._connection = ReconnectingConnection(url, f"reactor recovery {pod}", prepares=prepares)
        self._deadline = deadline
        self._users = 0

    async def stand_by(self) -> None:
        """Keeps the connection open until this is cancelled. To open it can take longer than what it is needed for."""
        self._users += 1
        try:
            with suppress(ReactorError, asyncpg.PostgresError):  # `retry` reports what is wrong, if it is needed
                await self._connection.open()
            await asyncio.Event().wait()
        finally:
            await self._leave()

    async def retry(self, operation: Callable[[Connection], Awaitable[Answer]]) -> Answer | None:
        """None: it was refused, or there was no time left."""
        self._users += 1
        work = asyncio.create_task(self._connection.retry(operation))
        try:
            await first_of(work, self._deadline())
            if not work.done():
                log.error("jobs not released in time; other pods release them when the lease expires")
                self.is_incomplete = True
                return None
            answer, _ = work.result()
            return answer
        except asyncpg.PostgresError as error:
            log.error("recovery failed", error=str(error), sqlstate=error.sqlstate)
            return None
        finally:
            work.cancel()
            await self._leave()

    async def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            await self._connection.close()
