"""Classifies what a database operation raised: what happened, and whether another try helps."""

import asyncio
from enum import Enum
from typing import TypeGuard

import asyncpg

from reactor.errors import ConnectionLost, DatabaseUnreachable, ReactorError, StatementTimeout


class Failure(Enum):
    UNREACHABLE = "no connection could be opened; nothing was sent"
    LOST = "the connection broke; whether the statement took effect is unknown"
    UNAVAILABLE = "the server is stopping, out of resources or read-only"
    """Whether the statement took effect is unknown here too: a server that stops may say so after the commit."""
    REPEATABLE = "the server rolled everything back, and accepts another try"
    LOCKED = "another transaction held a lock for longer than lock_timeout"
    SLOW = "it was cancelled, because it took longer than statement_timeout or than its client waits"
    OUT_OF_TIME = "the server ended the session, because its transaction took or paused for longer than allowed"
    """Where that is reported after the commit, the statement took effect."""
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

TRANSIENT = frozenset(Failure) - {Failure.REFUSED, Failure.BUG}
"""Another try of the same operation helps, sooner or later."""

_UNAVAILABLE_CLASSES = ("53", "57", "58")
"""Insufficient resources, operator intervention, system error."""
_UNAVAILABLE = ("25006",)  # read-only: the address leads to a standby until the failover is complete
_OUT_OF_TIME = ("25P03", "25P04")  # idle_in_transaction_session_timeout, transaction_timeout
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # asyncpg's confusion when the server's goodbye meets the next statement
    OSError,
    asyncio.IncompleteReadError,
)
_REPEATABLE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_REFUSED_CLASSES = ("22", "23", "44", "54", "P0")
"""Data, constraints, views' checks, limits, and what a trigger raises."""

_FROM_SERVER = (asyncpg.PostgresError, asyncpg.InternalClientError, DatabaseUnreachable)

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
    if isinstance(error, StatementTimeout | asyncpg.QueryCanceledError):
        return Failure.SLOW
    if isinstance(error, _LOST):
        return Failure.LOST
    if isinstance(error, asyncpg.LockNotAvailableError):
        return Failure.LOCKED
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate in _OUT_OF_TIME:
        return Failure.OUT_OF_TIME
    if _is_unavailable(error):
        return Failure.UNAVAILABLE
    if isinstance(error, _REPEATABLE):
        return Failure.REPEATABLE
    return Failure.REFUSED if isinstance(error, asyncpg.PostgresError | ReactorError) else Failure.BUG


def is_transient(error: BaseException) -> bool:
    return classify(error) in TRANSIENT


def had_no_effect(error: BaseException) -> bool:
    """For a statement that raised this. Where it is not known, only the answer may have been lost."""
    if classify(error) is Failure.SLOW:
        return isinstance(error, asyncpg.PostgresError)
    return classify(error) not in (Failure.LOST, Failure.UNAVAILABLE, Failure.OUT_OF_TIME)


def is_about_the_data(error: BaseException) -> TypeGuard[asyncpg.PostgresError]:
    """The server does not accept these values, now or later. Any other refusal may be taken back: by a GRANT, by the
    end of a migration."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _REFUSED_CLASSES


def server_failure(error: BaseException | None) -> Failure | None:
    """The server rolled back, went away, or can't do it now. For errors that handlers raise: they have connections and
    files of their own, so OSError and InterfaceError prove nothing. Libraries such as SQLAlchemy wrap the driver's
    error, and the driver what the server said when it ended the session."""
    found = None
    while error is not None and found in (None, Failure.LOST):
        if isinstance(error, _FROM_SERVER) and is_transient(error):
            found = classify(error)
        error = error.__cause__
    return found


def summary(error: BaseException) -> str:
    """One line for a log event; timeouts have no text."""
    return str(error).partition("\n")[0] or type(error).__name__


def _is_unavailable(error: BaseException) -> bool:
    sqlstate: str = getattr(error, "sqlstate", None) or ""
    is_from_server = isinstance(error, asyncpg.PostgresError)
    return is_from_server and (sqlstate in _UNAVAILABLE or sqlstate[:2] in _UNAVAILABLE_CLASSES)


def _is_closed(error: asyncpg.InterfaceError) -> bool:
    return type(error) is asyncpg.InterfaceError and any(text in str(error.args[0]) for text in _CLOSED)
