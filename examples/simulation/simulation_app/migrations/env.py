"""Alembic's entry point: the revisions of this application, in its own schema and with its own version table."""

import asyncio

from alembic import context
from sqlalchemy import Connection, Table
from sqlalchemy.schema import CreateSchema, SchemaItem

from simulation_app.database import open_engine
from simulation_app.tables import SCHEMA, Base


def is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Autogenerate compares our schema only. It would propose to drop reactor's tables otherwise."""
    return kind != "schema" or name == SCHEMA


def is_compared(item: SchemaItem, name: str | None, kind: str, is_reflected: bool, other: object) -> bool:
    """Not reactor's table of jobs, which ours refer to."""
    return not isinstance(item, Table) or item.schema == SCHEMA


def migrate(connection: Connection) -> None:
    connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_schemas=True,
        include_name=is_ours,
        include_object=is_compared,
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
