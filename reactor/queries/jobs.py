"""Lists jobs, newest first, and finds one with its dependencies, steps and attempts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import decoded, encode
from reactor.errors import JobUnknown
from reactor.job import JobState

_MAX_SCANNED = 50_000
_JSON_IN_LISTS = ("step_counts", "durations")


@dataclass(frozen=True)
class Filters:
    """Conditions that listed jobs meet; None: any value."""

    state: JobState | None = None
    job_type: str | None = None
    queue: str | None = None
    scope: str | None = None
    tag: str | None = None
    pipeline_id: UUID | None = None
    meta: Mapping[str, Any] | None = None
    """Facts that the job's meta has."""


@dataclass(frozen=True)
class Page:
    jobs: list[dict[str, Any]]
    before: int | None
    """The value of `before` for the next page; None on the last page. A page that is not the last may be short."""


async def list_jobs(
    connection: Connection,
    filters: Filters | None = None,
    limit: int = 50,
    before: int | None = None,
    *,
    max_scanned: int = _MAX_SCANNED,
) -> Page:
    """A page of jobs, newest first. Pages are keyed by id, so new jobs don't shift them.

    A page scans at most `max_scanned` jobs, so it may be short if its filter matches few.
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
        max_scanned,
        None if filters.meta is None else encode(filters.meta),
    )
    jobs = [dict(record) for record in records if record["id"] is not None]
    for job in jobs:
        del job["next_before"]
        for name in _JSON_IN_LISTS:
            job[name] = decoded(job[name])
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1]["id"])
    return Page(jobs, records[0]["next_before"])


async def find_job(connection: Connection, job_id: int) -> dict[str, Any]:
    """The job's columns, and as lists of dicts its `dependencies`, `steps` and `earlier_attempts`."""
    job = await find_job_as_stored(connection, job_id)
    del job["version"]
    for name in ("payload", "result", "meta", *_JSON_IN_LISTS):
        job[name] = decoded(job[name])
    for name in ("dependencies", "steps", "earlier_attempts"):
        job[name] = [_with_times(decoded(row)) for row in job[name]]
    return job


async def find_job_as_stored(connection: Connection, job_id: int) -> dict[str, Any]:
    """The same, with JSON values as text, so that callers can forward numbers without losing digits, and the `version`
    of what was read."""
    record = await connection.fetchrow(statements.FIND_JOB, job_id)
    if record is None:
        raise JobUnknown(job_id)
    return dict(record)


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if name.endswith("_at") and value else value for name, value in row.items()
    }
