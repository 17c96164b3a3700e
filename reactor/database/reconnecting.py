"""A connection for one owner: opened when it is needed, and again after it broke."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from reactor.database.connection import Connection, open_connection
from reactor.errors import DatabaseUnreachable
from reactor.log import get_logger

log = get_logger(__name__)
Answer = TypeVar("Answer")

# InternalClientError: asyncpg's confusion when the server's goodbye meets the next statement.
CONNECTION_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.IncompleteReadError,
)
"""The server or the way to it is gone; whether a statement that was under way took effect is not known."""
SERVER_STOPS = (
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,  # the address leads to a standby, until the failover is through
)
SERVER_GONE = (
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)
"""The same, as told by errors that can mean nothing else, whoever raised them."""
TO_BE_REPEATED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server undid everything, and has nothing against another try."""

_STATEMENT_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class Line:
    def __init__(
        self, url: str, name: str, statement_seconds: float = _STATEMENT_SECONDS, *, prepares: bool = False
    ) -> None:
        """`prepares`: statements are prepared once, which is quicker where they are many; not through a pooler."""
        self._url = url
        self._name = name
        self._prepares = prepares
        self._statement_seconds = statement_seconds
        self._connection: Connection | None = None

    async def once(self, operation: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Runs `operation`; a connection that failed it is not used again."""
        try:
            # Also on a network that swallows everything: a statement that takes so long has lost its server.
            async with asyncio.timeout(self._statement_seconds):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await open_connection(self._url, name=self._name, prepares=self._prepares)
                return await operation(self._connection)
        except (*CONNECTION_LOST, *SERVER_STOPS, asyncio.CancelledError):
            self.drop()
            raise

    async def insist(self, operation: Callable[[Connection], Awaitable[Answer]]) -> tuple[Answer, bool]:
        """Runs `operation` until it gets through, whatever happens to the server in between.

        The second value tells that an earlier try may have taken effect, although its answer was lost.
        """
        pause, lost = _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                answer = await self.once(operation)
            except TO_BE_REPEATED as error:
                log.info("statement to be repeated", line=self._name, error=str(error))
            except (*CONNECTION_LOST, *SERVER_STOPS, DatabaseUnreachable) as error:
                lost = lost or not isinstance(error, DatabaseUnreachable)
                if pause == _FIRST_PAUSE_SECONDS:
                    log.warning("database lost", line=self._name, error=str(error) or type(error).__name__)
            else:
                if lost:
                    log.info("database back", line=self._name)
                return answer, lost
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    def drop(self) -> None:
        """Without a goodbye, which could take for ever."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            try:
                await self._connection.close(timeout=2)
            except (*CONNECTION_LOST, TimeoutError):
                self.drop()
        self._connection = None
