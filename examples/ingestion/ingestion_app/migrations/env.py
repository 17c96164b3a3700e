"""P10: Alembic's entry point. The revisions of this application, in its own schema, with its own version table."""

import asyncio

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.schema import CreateSchema

from ingestion_app.database import open_engine
from ingestion_app.models import SCHEMA, Base


def is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Autogenerate compares our schema only. It would propose to drop reactor's tables otherwise."""
    return kind != "schema" or name == SCHEMA


def migrate(connection: Connection) -> None:
    connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_schemas=True,
        include_name=is_ours,
        version_table_schema=SCHEMA,
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()


async def run() -> None:
    engine = open_engine()
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


asyncio.run(run())
