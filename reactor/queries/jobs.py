"""Looks at jobs: the newest, page by page, or one with all that is known about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded
from reactor.errors import JobUnknown
from reactor.job import JobState

_LOOKED_AT = 50_000


@dataclass(frozen=True)
class Filters:
    """What listed jobs must have; None: anything."""

    state: JobState | None = None
    job_type: str | None = None
    queue: str | None = None
    scope: str | None = None
    tag: str | None = None
    pipeline_id: UUID | None = None


@dataclass(frozen=True)
class Page:
    jobs: list[dict[str, Any]]
    before: int | None
    """What to give as `before` for the next page; None: this was the last. A page may be short and not be the last."""


async def list_jobs(
    connection: Connection, filters: Filters | None = None, limit: int = 50, before: int | None = None
) -> Page:
    """The newest jobs first. Pages stay put while jobs arrive, since they go by id.

    Each looks at 50,000 jobs at most: where a filter finds few, pages are short.
    """
    filters = filters or Filters()
    records = await connection.fetch(
        statements.LIST_JOBS,
        before,
        limit + 1,
        filters.state,
        filters.job_type,
        filters.queue,
        filters.scope,
        filters.tag,
        filters.pipeline_id,
        _LOOKED_AT,
    )
    jobs = [dict(record) for record in records if record["id"] is not None]
    for job in jobs:
        del job["onward"]
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1]["id"])
    return Page(jobs, records[0]["onward"])


async def find_job(connection: Connection, job_id: int) -> dict[str, Any]:
    """The job's columns, and as lists of dicts its `dependencies`, `steps` and `earlier_attempts`."""
    job = await find_job_as_stored(connection, job_id)
    for name in ("payload", "result"):
        job[name] = decoded(job[name])
    for name in ("dependencies", "steps", "earlier_attempts"):
        job[name] = [_with_times(decoded(row)) for row in job[name]]
    return job


async def find_job_as_stored(connection: Connection, job_id: int) -> dict[str, Any]:
    """The same with the JSON of payload, result and lists as text, which keeps every digit for whoever passes it on."""
    record = await connection.fetchrow(statements.FIND_JOB, job_id)
    if record is None:
        raise JobUnknown(job_id)
    return dict(record)


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if name.endswith("_at") and value else value for name, value in row.items()
    }
