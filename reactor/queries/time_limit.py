"""A time limit for queries that may read much of a table."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import TooMuchToCount


@asynccontextmanager
async def time_limited(connection: Connection, seconds: float) -> AsyncIterator[None]:
    """Runs a block in one read-only snapshot; the server cancels any of its statements after `seconds`."""
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(statements.SET_STATEMENT_TIMEOUT, round(seconds * 1000))
            yield
    except asyncpg.QueryCanceledError as error:
        raise TooMuchToCount(seconds) from error
