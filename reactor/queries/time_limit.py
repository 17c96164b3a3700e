"""Questions whose answers nobody waits for long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import TooMuchToCount


@asynccontextmanager
async def limited(connection: Connection, seconds: float) -> AsyncIterator[None]:
    """One snapshot for all of a block, and an end to each of its statements that the server itself sees to."""
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(statements.LIMIT_STATEMENTS, round(seconds * 1000))
            yield
    except asyncpg.QueryCanceledError as error:
        raise TooMuchToCount(seconds) from error
