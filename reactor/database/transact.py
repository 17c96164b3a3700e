"""Runs work in one transaction, and repeats it after a deadlock."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify
from reactor.errors import DatabaseBusy, LockedElsewhere

TRIES = 6
LOCK_SECONDS = 10.0
_between = random.SystemRandom().uniform

T = TypeVar("T")


async def transact(connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    """Repeats the transaction after a deadlock with another one, which the order of locks can't always avoid.

    READ COMMITTED whatever the server's default is: jobs can't be ended with a fixed snapshot.
    """
    for number in range(TRIES):
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(statements.SET_LOCK_TIMEOUT, round(LOCK_SECONDS * 1000))
                return await work()
        except asyncpg.LockNotAvailableError:
            raise LockedElsewhere(LOCK_SECONDS) from None
        except asyncpg.PostgresError as error:
            if classify(error) is not Failure.REPEATABLE:
                raise
            await anyio.sleep(_between(0, 0.02 * 2**number))
    raise DatabaseBusy(TRIES)
