"""Writes how attempts ended, many at once, each only if it still holds its job."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from reactor import statements
from reactor.database import Connection
from reactor.job import JobState
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Snoozed


class _Row(NamedTuple):
    outcome: str
    result: str | None = None
    error: str | None = None
    message: str | None = None
    delay_seconds: float | None = None


async def settle(connection: Connection, endings: Sequence[Ending]) -> dict[int, JobState]:
    """The state of every job that was written. A job that is missing was not the attempt's any more."""
    in_lock_order = sorted(endings, key=lambda ending: ending.job_id)
    rows = [_row(ending.outcome) for ending in in_lock_order]
    records = await connection.fetch(
        statements.SETTLE,
        [ending.job_id for ending in in_lock_order],
        [ending.attempt_id for ending in in_lock_order],
        *(list(column) for column in (zip(*rows, strict=True) if rows else [[]] * len(_Row._fields))),
    )
    return {record["id"]: JobState(record["state"]) for record in records}


async def release(
    connection: Connection, held: dict[int, UUID], *, outcome: str, why: str, free: bool
) -> dict[int, JobState]:
    """Gives back attempts that can't go on; `outcome` is `released` or `crashed`. Free ones cost no attempt."""
    records = await connection.fetch(
        statements.RELEASE, sorted(held), [held[job_id] for job_id in sorted(held)], outcome, why, free
    )
    return {record["id"]: JobState(record["state"]) for record in records}


def _row(outcome: Outcome) -> _Row:
    match outcome:
        case Completed(result, message):
            return _Row("completed", result=_json(result), message=message)
        case Partial(result, message):
            return _Row("partial", result=_json(result), message=message)
        case Failed(error):
            return _Row("failed", error=error)
        case Errored(error, retry_after_seconds):
            return _Row("error", error=error, delay_seconds=retry_after_seconds)
        case Snoozed(for_seconds, message):
            return _Row("snoozed", message=message, delay_seconds=for_seconds)
        case _:
            assert_never(outcome)


def _json(value: dict[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)
