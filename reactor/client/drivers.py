"""Runs a statement with one parameter in the caller's transaction, whatever driver the caller has."""

from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reactor.errors import DriverUnknown

if TYPE_CHECKING:
    import asyncpg
    import sqlalchemy
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy.ext.asyncio import AsyncConnection as SqlalchemyAsyncConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

Rows: TypeAlias = Sequence[Sequence[Any]]


class PsycopgConnection(Protocol):
    """psycopg.Connection. psycopg is not a dependency: where it is missing, its classes would be Any to a type checker,
    Any accepts every connection, and a forgotten `await` would go unnoticed."""

    @property
    def pgconn(self) -> Any: ...
    def commit(self) -> None: ...


class PsycopgAsyncConnection(Protocol):
    """psycopg.AsyncConnection."""

    @property
    def pgconn(self) -> Any: ...
    def commit(self) -> Coroutine[Any, Any, None]: ...


SyncConnection: TypeAlias = "PsycopgConnection | Session | sqlalchemy.Connection"
# One literal each: pyright does not read a type from two strings.
AsyncpgConnection: TypeAlias = "asyncpg.Connection[Any] | PoolConnectionProxy[Any]"
AsyncConnection: TypeAlias = "AsyncpgConnection | PsycopgAsyncConnection | AsyncSession | SqlalchemyAsyncConnection"


def fetch(connection: Any, statement: str, argument: str) -> Rows | Awaitable[Rows]:
    """The rows, to be awaited where the driver is asynchronous. `statement` has $1 for its parameter.

    A driver is told by the module of its classes, so that none is imported, or needs to be installed, for the others.
    """
    for module in (kind.__module__ for kind in type(connection).__mro__):
        if module.startswith("asyncpg."):
            rows: Awaitable[Rows] = connection.fetch(statement, argument)
            return rows
        if module.startswith("psycopg."):
            return _psycopg(connection, statement, argument)
        if module.startswith("sqlalchemy.ext.asyncio."):
            return _sqlalchemy_later(connection, statement, argument)
        if module.startswith("sqlalchemy."):
            return _sqlalchemy(connection, statement, argument)
    raise DriverUnknown(type(connection))


def _psycopg(connection: Any, statement: str, argument: str) -> Rows | Awaitable[Rows]:
    from psycopg import AsyncConnection
    from psycopg.rows import tuple_row

    statement = statement.replace("%", "%%").replace("$1", "%s")
    if isinstance(connection, AsyncConnection):

        async def later() -> Rows:
            async with connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(statement, [argument])
                return await cursor.fetchall()

        return later()
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement, [argument])
        rows: Rows = cursor.fetchall()
        return rows


def _sqlalchemy(connection: "Session | sqlalchemy.Connection", statement: str, argument: str) -> Rows:
    from sqlalchemy import text

    return connection.execute(text(statement.replace("$1", ":argument")), {"argument": argument}).all()


async def _sqlalchemy_later(
    connection: "AsyncSession | SqlalchemyAsyncConnection", statement: str, argument: str
) -> Rows:
    from sqlalchemy import text

    result = await connection.execute(text(statement.replace("$1", ":argument")), {"argument": argument})
    return result.all()
