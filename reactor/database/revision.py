"""The revision of a database's schema, and the one that this program needs."""

from reactor.database import statements
from reactor.database.assets import folder
from reactor.database.connection import Connection
from reactor.errors import DatabaseReadOnly, EncodingUnsupported, ReactorError, SchemaBehind, SchemaUnknown


def known_revisions() -> list[str]:
    """In order, from the file names: Alembic takes half a second to import."""
    return sorted(path.name.partition("_")[0] for path in (folder("migrations") / "versions").glob("[0-9]*_*.py"))


def newest_revision() -> str:
    known = known_revisions()
    if not known:
        raise ReactorError(f"There are no migrations in {folder('migrations')}.", "Reinstall pg-reactor.")
    return known[-1]


async def current_revision(connection: Connection) -> str | None:
    if not await connection.fetchval(statements.HAS_VERSION_TABLE):
        return None
    revision: str | None = await connection.fetchval(statements.CURRENT_REVISION)
    return revision


async def check_writable(connection: Connection) -> None:
    """Raises if nothing can be written here."""
    if await connection.fetchval(statements.IS_READ_ONLY):
        raise DatabaseReadOnly


async def check_encoding(connection: Connection) -> None:
    """Raises if not every text can be written here."""
    encoding = await connection.fetchval(statements.ENCODING)
    if encoding != "UTF8":
        raise EncodingUnsupported(encoding)


async def check_revision(connection: Connection) -> str:
    """The database's revision; raises unless it is the one that this program needs."""
    found, wanted = await current_revision(connection), newest_revision()
    if found == wanted:
        return found
    raise SchemaUnknown(found) if found and found not in known_revisions() else SchemaBehind(found, wanted)
