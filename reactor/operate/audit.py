"""An operator's work: one transaction, with its note in the audit."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode, storable
from reactor.errors import DatabaseBusy, LockedElsewhere

TRIES = 6
_LOCK_SECONDS = 10.0
_between = random.SystemRandom().uniform

T = TypeVar("T")


@dataclass(frozen=True)
class Operator:
    who: str
    came_from: str
    """`cli`, or the address of an HTTP client."""


async def transact(connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    """The work in one transaction; again when it crossed somebody else's, which the order of locks can't always avoid.

    READ COMMITTED whatever the server's default is: jobs can't be ended with a fixed snapshot.
    """
    for number in range(TRIES):
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(statements.WAIT_FOR_LOCKS, round(_LOCK_SECONDS * 1000))
                return await work()
        except asyncpg.LockNotAvailableError:
            raise LockedElsewhere(_LOCK_SECONDS) from None
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            await anyio.sleep(_between(0, 0.02 * 2**number))
    raise DatabaseBusy(TRIES)


async def note(connection: Connection, by: Operator, what: str, target: str | None, details: dict[str, Any]) -> None:
    await connection.execute(statements.AUDIT, storable(by.who), what, target, storable(by.came_from), encode(details))
