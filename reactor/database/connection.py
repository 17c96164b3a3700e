"""Opens connections to PostgreSQL, with errors that say what to do."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import asyncpg

from reactor.database import statements
from reactor.database.array_types import ARRAY_TYPES
from reactor.database.handler_connection import HandlerConnection
from reactor.database.url import Target, address, database, parse
from reactor.errors import DatabaseUnreachable, ServerUnsupported

OLDEST_SERVER = 15
NEWEST_TESTED_SERVER = 18

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_NOT_CONNECTED = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)


class _EngineConnection(asyncpg.Connection):
    """All of its transactions are READ COMMITTED. Behind a pooler each statement begins one that says so, because what
    is set for a session reaches one of many, and stays there for other applications."""

    __slots__ = ("is_pooled",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_pooled = False

    async def _execute(self, *args: Any, **options: Any) -> Any:
        """Whatever has parameters or an answer goes through here; BEGIN and COMMIT don't."""
        if not self.is_pooled or self.is_in_transaction():
            return await super()._execute(*args, **options)  # type: ignore[misc]
        async with self.transaction(isolation="read_committed"):
            return await super()._execute(*args, **options)  # type: ignore[misc]


async def open_connection(url: str, *, name: str, timeout_seconds: float = 10, prepares: bool = True) -> Connection:
    """A new connection, shown as `name` in pg_stat_activity. The caller must close it.

    `prepares`: False for connections that must work through old transaction poolers, which break named prepared
    statements.
    """
    target = parse(url)
    timeout_seconds = target.connect_timeout or timeout_seconds
    try:
        connection = await asyncpg.connect(
            target.dsn,
            timeout=timeout_seconds,
            direct_tls=target.direct_tls,
            server_settings={"application_name": name, "timezone": "UTC"},
            statement_cache_size=100 if prepares else 0,
            connection_class=_EngineConnection,
        )
    except _NOT_CONNECTED as error:
        raise _unreachable(url, error, timeout_seconds) from error
    if connection.get_server_version().major < OLDEST_SERVER:
        version = connection.get_settings().server_version
        await connection.close()
        raise ServerUnsupported(version, OLDEST_SERVER)
    _prepare(connection, target)
    try:
        connection.is_pooled = await connection.fetchval(
            statements.USE_READ_COMMITTED, connection.get_server_pid(), timeout=timeout_seconds
        )
    except BaseException:
        connection.terminate()
        raise
    return connection


async def is_pooled(connection: Connection) -> bool:
    """A pooler sends its own backend key at connect: the process that it names is not the one that answers."""
    return bool(await connection.fetchval(statements.BACKEND_PID) != connection.get_server_pid())


async def transaction_timeout(connection: Connection) -> float:
    """In seconds; 0: none."""
    seconds: float = await connection.fetchval(statements.TRANSACTION_TIMEOUT)
    return seconds


async def open_pool(
    url: str, *, name: str, size: int, prepares: bool = True, timezone: str | None = None
) -> "asyncpg.Pool[asyncpg.Record]":
    """Connections for handlers' transactions and for requests, opened when they are needed. Raises DatabaseUnreachable
    where that fails.

    `timezone`: of the times in JSON that the server generates; None: the server's default.
    """
    target = parse(url)
    timeout_seconds = target.connect_timeout or 60

    async def connect_pooled(*args: Any, **options: Any) -> Connection:
        try:
            return await asyncpg.connect(*args, **options)
        except _NOT_CONNECTED as error:
            raise _unreachable(url, error, timeout_seconds) from error

    return await asyncpg.create_pool(
        target.dsn,
        min_size=0,
        max_size=size,
        server_settings={"application_name": name} | ({"timezone": timezone} if timezone else {}),
        statement_cache_size=100 if prepares else 0,
        init=partial(_prepare_pooled, target),
        timeout=timeout_seconds,
        direct_tls=target.direct_tls,
        connection_class=HandlerConnection,
        connect=connect_pooled,
    )


@asynccontextmanager
async def connect(
    url: str, *, name: str, timeout_seconds: float = 10, prepares: bool = True
) -> AsyncIterator[Connection]:
    """`open_connection` for the length of a block."""
    connection = await open_connection(url, name=name, timeout_seconds=timeout_seconds, prepares=prepares)
    try:
        yield connection
    finally:
        await connection.close(timeout=timeout_seconds)


def _prepare(connection: Connection, target: Target) -> None:
    # asyncpg would ask for the arrays of each statement, with up to six round trips a time and a slow query.
    settings: Any = connection.get_settings()
    settings.register_data_types(ARRAY_TYPES)
    _notice_a_dead_peer(connection, target.keepalives)


async def _prepare_pooled(target: Target, connection: Connection) -> None:
    _prepare(connection, target)


def _notice_a_dead_peer(connection: Connection, keepalives: Mapping[str, int]) -> None:
    """Makes the kernel probe an idle peer, and give up on data that the peer does not acknowledge."""
    transport = connection._transport  # type: ignore[attr-defined]  # asyncpg has no public access
    original = transport.get_extra_info("socket")
    if not keepalives or original is None or original.family == getattr(socket, "AF_UNIX", None):
        return
    # A duplicate, because uvloop's sockets take no options; options belong to the connection, not to the descriptor.
    with socket.socket(fileno=os.dup(original.fileno())) as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in keepalives.items():
            if hasattr(socket, option):
                handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _unreachable(url: str, error: Exception, timeout_seconds: float) -> DatabaseUnreachable:
    where = address(url)
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return DatabaseUnreachable(where, str(error), "Check user and password in REACTOR_DATABASE_URL.")
        case asyncpg.InvalidCatalogNameError():
            return DatabaseUnreachable(where, str(error), f"Create it (createdb {database(url)}), or use another one.")
        case asyncpg.TooManyConnectionsError():
            return DatabaseUnreachable(
                where, str(error), "End idle sessions, raise max_connections, or put a pooler in front."
            )
        case asyncpg.CannotConnectNowError():
            return DatabaseUnreachable(where, str(error), "It is starting or stopping. Try again in a moment.")
        case asyncpg.UndefinedObjectError() | asyncpg.CantChangeRuntimeParamError() | asyncpg.ProtocolViolationError():
            return DatabaseUnreachable(
                where,
                str(error),
                "Remove this parameter from the URL; docs/settings.md lists those that it may have.",
            )
        case asyncpg.PostgresError() | asyncpg.InterfaceError() | ValueError() | ssl.SSLError():
            return DatabaseUnreachable(
                where, str(error), "Check REACTOR_DATABASE_URL: postgresql://user:password@host:5432/database"
            )
        case ConnectionError() if "rejected SSL upgrade" in str(error):
            return DatabaseUnreachable(
                where,
                "the server does not offer TLS, which sslmode asks for",
                "Turn it on there (ssl = on), or use sslmode=prefer if nobody can listen in between.",
            )
        case asyncio.TimeoutError():
            why = f"no answer in {timeout_seconds:g} s"
        case _:
            why = str(error) or type(error).__name__
    return DatabaseUnreachable(
        where,
        why,
        "Is the server running, and does a firewall let this machine in? Check REACTOR_DATABASE_URL.",
    )
