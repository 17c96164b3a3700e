"""Brings a database's reactor schema to the revision that this program needs."""

import io
from collections.abc import Callable
from functools import partial

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection as SyncConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from reactor.database import statements
from reactor.database.assets import folder
from reactor.database.connection import Connection, open_connection
from reactor.database.restore_repair import repair_restored_rows
from reactor.database.revision import current_revision, known_revisions
from reactor.database.url import address
from reactor.errors import (
    DatabaseReadOnly,
    EncodingUnsupported,
    MigrationFailed,
    PrivilegeMissing,
    ReactorError,
    SchemaForeign,
    SchemaUnknown,
)
from reactor.log import get_logger

log = get_logger(__name__)

# All migrations of one database take turns by this advisory lock ("reactor" in ASCII).
LOCK_KEY = 0x72656163746F72


async def migrate(url: str) -> tuple[str | None, str | None]:
    """Up to the newest revision, from any number of pods at once. Returns the revisions before and after.

    One at a time in one process, though: Alembic's `op` is a global.
    """
    revisions = await _run(url, partial(command.upgrade, revision="head"))
    await repair_restored_rows(url)
    return revisions


async def migrate_down(url: str, revision: str) -> tuple[str | None, str | None]:
    """Down to a revision, or to `base`. What later revisions added is dropped, data included."""
    return await _run(url, partial(command.downgrade, revision=revision))


def migration_script() -> str:
    """The SQL of it all, for those who want to read or run it themselves."""
    written = io.StringIO()
    command.upgrade(_config(written), "head", sql=True)
    return written.getvalue()


def preparation_script() -> str:
    """Roles and schema: what needs more privileges than the rest."""
    return f"{roles_script()}\n{(folder('migrations') / 'prepare.sql').read_text()}"


def roles_script() -> str:
    return (folder("migrations") / "roles.sql").read_text()


async def _run(url: str, step: Callable[[Config], None]) -> tuple[str | None, str | None]:
    connection = await open_connection(url, name="reactor migrate")
    triggers: list[str] = []
    try:
        await _take_turn(connection)
        facts = await connection.fetchrow(statements.MIGRATION_FACTS)
        assert facts
        triggers = facts["event_triggers"]
        _check(facts)
        before = await current_revision(connection)
        if before and before not in known_revisions():
            raise SchemaUnknown(before)
        await _prepare(connection, facts, address(url))
        return before, await _alembic(connection, step)
    except (DBAPIError, asyncpg.PostgresError) as error:
        why = error.orig if isinstance(error, DBAPIError) else error
        raise MigrationFailed(str(why), triggers) from error
    finally:
        # Gives the lock back too: it belongs to the session, for one migration may need several transactions.
        await connection.close()


async def _take_turn(connection: Connection) -> None:
    if not await connection.fetchval(statements.TRY_MIGRATION_LOCK, LOCK_KEY):
        log.info("another migration is running; waiting for it")
        async with connection.transaction():
            await connection.execute(statements.WAIT_WITHOUT_LIMIT)
            await connection.execute(statements.TAKE_MIGRATION_LOCK, LOCK_KEY)


def _check(facts: asyncpg.Record) -> None:
    if facts["is_read_only"]:
        raise DatabaseReadOnly
    if facts["encoding"] != "UTF8":
        raise EncodingUnsupported(facts["encoding"])
    if facts["foreign_schema"]:
        raise SchemaForeign(facts["foreign_schema"])


async def _prepare(connection: Connection, facts: asyncpg.Record, where: str) -> None:
    try:
        async with connection.transaction():
            await connection.execute(statements.WAIT_WITHOUT_LIMIT)
            await connection.execute(preparation_script())
        await connection.execute("set role reactor_owner")
    except asyncpg.InsufficientPrivilegeError as error:
        user = await connection.fetchval(statements.QUOTED_USER)
        # Without the schema: an administrator of a managed server may create roles, but owns no database. We create it.
        script = f"{roles_script()}\n{facts['grants']}\n"
        raise PrivilegeMissing(user, f"{error} (preparing {where})", script) from error


async def _alembic(connection: Connection, step: Callable[[Config], None]) -> str | None:
    async def ours() -> Connection:
        return connection

    def on(synchronous: SyncConnection) -> None:
        config = _config()
        config.attributes["connection"] = synchronous
        step(config)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=ours, poolclass=NullPool)
    async with engine.connect() as wrapped:  # which closes our connection when it is left
        try:
            await wrapped.run_sync(on)
            return await current_revision(connection)
        except CommandError as error:
            raise ReactorError(str(error)) from error


def _config(output: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output)
    # Alembic's configuration interpolates %, which a path may hold.
    config.set_main_option("script_location", str(folder("migrations")).replace("%", "%%"))
    return config
