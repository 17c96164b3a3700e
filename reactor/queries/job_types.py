"""Lists the job types that workers have published."""

from typing import Any

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.errors import JobTypeUnknown


async def list_job_types(connection: Connection) -> list[dict[str, Any]]:
    return [_as_dict(record) for record in await connection.fetch(statements.LIST_JOB_TYPES, None)]


async def find_job_type(connection: Connection, name: str) -> dict[str, Any]:
    """Raises JobTypeUnknown."""
    records = await connection.fetch(statements.LIST_JOB_TYPES, name)
    if not records:
        raise JobTypeUnknown(name)
    return _as_dict(records[0])


def _as_dict(record: asyncpg.Record) -> dict[str, Any]:
    return dict(record) | {"payload_schema": decoded(record["payload_schema"])}
