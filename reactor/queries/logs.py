"""Reads what a job's handlers logged, in pages."""

from dataclasses import dataclass
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import JobUnknown
from reactor.job import JobState
from reactor.job_log import LEVELS, Level

_BEYOND = 2**63 - 1


@dataclass(frozen=True)
class LogFilters:
    """Conditions that listed lines meet; None: any value."""

    attempt: int | None = None
    step: str | None = None
    level: Level | None = None
    """The lowest."""


@dataclass(frozen=True)
class LogPage:
    lines: list[dict[str, Any]]
    """In the order of their ids; `fields` as JSON text."""
    job_state: JobState
    """In the snapshot of the lines: after a terminal state no more follow."""
    after: int
    """The value of `after` for the lines that follow."""
    has_more: bool
    """Some of those exist already."""
    before: int | None
    """The value of `before` for the lines before these; None: these are the first, or the page was read forwards."""


async def list_logs(
    connection: Connection,
    job_id: int,
    filters: LogFilters | None = None,
    limit: int = 200,
    *,
    after: int | None = None,
    before: int | None = None,
) -> LogPage:
    """The first lines after the id `after`; without it, the last ones. Only lines before the id `before`."""
    filters = filters or LogFilters()
    is_backwards = after is None
    records = await connection.fetch(
        statements.LIST_LOGS,
        job_id,
        after or 0,
        before or _BEYOND,
        limit + 1,
        filters.attempt,
        filters.step,
        None if filters.level is None else LEVELS[LEVELS.index(filters.level) :],
        is_backwards,
    )
    if not records:
        raise JobUnknown(job_id)
    state, newest = JobState(records[0]["job_state"]), records[0]["newest"] or 0
    lines = [dict(record) for record in records if record["id"] is not None]
    for line in lines:
        del line["job_state"], line["newest"]
    is_full = len(lines) > limit
    if is_backwards:
        lines = lines[-limit:]
        ahead = before is not None and newest >= before
        last = lines[-1]["id"] if ahead and lines else newest if not ahead else (before or 1) - 1
        return LogPage(lines, state, last, ahead, lines[0]["id"] if is_full else None)
    lines = lines[:limit]
    last = lines[-1]["id"] if is_full else max(newest, after or 0)
    if before is not None:
        last = min(last, before - 1)
    return LogPage(lines, state, last, is_full, None)
