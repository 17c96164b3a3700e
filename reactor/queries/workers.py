"""Lists worker processes: live ones, and those that died recently."""

from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded


async def list_workers(connection: Connection) -> list[dict[str, Any]]:
    """Live workers, and those that died within the last hour."""
    workers = [dict(record) for record in await connection.fetch(statements.LIST_WORKERS)]
    for worker in workers:
        worker["counts"] = decoded(worker["counts"])
    return workers
