"""Locates the database: REACTOR_DATABASE_URL, or the embedded server, which is started if needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import asyncpg

from reactor.database import statements
from reactor.database.connection import connect
from reactor.database.url import with_database
from reactor.embedded import EmbeddedServer, start_embedded
from reactor.settings import Settings

EMBEDDED_DATABASE = "reactor"


@dataclass(frozen=True)
class Location:
    """The URLs of the database, and the embedded server if that is used."""

    url: str
    listen_url: str
    """Bypasses any pooler; for LISTEN and migrations, which need a session."""
    embedded: EmbeddedServer | None = None


@asynccontextmanager
async def locate(settings: Settings) -> AsyncIterator[Location]:
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        yield Location(url, settings.listen_url.get_secret_value() if settings.listen_url else url)
        return
    server = await anyio.to_thread.run_sync(
        lambda: start_embedded(settings.embedded_dir, version=settings.embedded_version)
    )
    try:
        await _create_database(server.url())
        url = with_database(server.url(), EMBEDDED_DATABASE)
        yield Location(url, url, server)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.close)


async def _create_database(url: str) -> None:
    async with connect(url, name="reactor") as connection:
        if not await connection.fetchval(statements.DATABASE_EXISTS, EMBEDDED_DATABASE):
            # Another process may create it at the same time.
            with suppress(asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
                await connection.execute(f"create database {EMBEDDED_DATABASE}")
