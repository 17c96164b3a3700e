"""The jobs that a job waited for, with their results."""

from typing import Any, NamedTuple

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.job import JobState


class Upstream(NamedTuple):
    id: int
    job_type: str | None
    state: JobState
    result: dict[str, Any] | None


async def upstream(connection: Connection, job_id: int) -> list[Upstream]:
    """In the order of their ids."""
    return [
        Upstream(record["id"], record["job_type"], JobState(record["state"]), decoded(record["result"]))
        for record in await connection.fetch(statements.UPSTREAM, job_id)
    ]
