"""Classifies what a database operation raised: what happened, and whether another try helps."""

import asyncio
from enum import Enum

import asyncpg

from reactor.errors import ConnectionLost, DatabaseUnreachable, ReactorError


class Failure(Enum):
    UNREACHABLE = "no connection could be opened; nothing was sent"
    LOST = "the connection broke; whether the statement took effect is unknown"
    UNAVAILABLE = "the server is stopping, out of resources or a standby"
    """Whether the statement took effect is unknown here too: a server that stops may say so after the commit."""
    REPEATABLE = "the server rolled everything back, and accepts another try"
    REFUSED = "the server refuses this statement, and would refuse it again"
    BUG = "a mistake in this program, and not the database's doing"


DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    asyncio.IncompleteReadError,
)
"""All that asyncpg raises, for places where the reason does not matter."""

TRANSIENT = frozenset({Failure.UNREACHABLE, Failure.LOST, Failure.UNAVAILABLE, Failure.REPEATABLE})
"""Another try of the same operation helps, sooner or later."""

_UNAVAILABLE = (
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,  # the address leads to a standby until the failover is complete
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # asyncpg's confusion when the server's goodbye meets the next statement
    OSError,  # timeouts too
    asyncio.IncompleteReadError,
)
_REPEATABLE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_SERVER_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)

# asyncpg raises InterfaceError for a connection that is gone, and for misuse of its API: too many arguments, a second
# operation on a busy connection, a transaction that has ended. Only the text tells them apart.
_CLOSED = ("is closed", "is closing", "released back to the pool")


def classify(error: BaseException) -> Failure:
    match error:
        case DatabaseUnreachable():
            return Failure.UNREACHABLE
        case ConnectionLost():
            return Failure.LOST
        case asyncpg.InterfaceError():
            return Failure.LOST if _is_closed(error) else Failure.BUG
        case asyncpg.DataError() if getattr(error, "severity", None) is None:
            return Failure.BUG  # raised by the driver, which could not encode an argument: the server never saw it
    if isinstance(error, _LOST):
        return Failure.LOST
    if isinstance(error, _UNAVAILABLE):
        return Failure.UNAVAILABLE
    if isinstance(error, _REPEATABLE):
        return Failure.REPEATABLE
    return Failure.REFUSED if isinstance(error, asyncpg.PostgresError | ReactorError) else Failure.BUG


def is_transient(error: BaseException) -> bool:
    return classify(error) in TRANSIENT


def is_server_failure(error: BaseException | None) -> bool:
    """The server rolled back or went away. For errors that handlers raise: they have connections and files of their
    own, so OSError and InterfaceError prove nothing. Libraries such as SQLAlchemy wrap the driver's error."""
    while error is not None:
        if isinstance(error, (*_REPEATABLE, *_SERVER_GONE)):
            return True
        error = error.__cause__
    return False


def summary(error: BaseException) -> str:
    """One line for a log event; timeouts have no text."""
    return str(error).partition("\n")[0] or type(error).__name__


def _is_closed(error: asyncpg.InterfaceError) -> bool:
    return type(error) is asyncpg.InterfaceError and any(text in str(error.args[0]) for text in _CLOSED)
