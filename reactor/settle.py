"""Writes how attempts ended, many at once, each only if it still holds its job."""

from collections.abc import Sequence
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from reactor import statements
from reactor.database import Connection
from reactor.encode import encode
from reactor.job import JobState
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Snoozed

_LONGEST_DELAY_SECONDS = 10 * 365 * 86400.0


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
        *(_column(column) for column in (zip(*rows, strict=True) if rows else [()] * len(_Row._fields))),
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


def _column(values: tuple[Any, ...]) -> list[Any] | None:
    """None for nothing but None: unnest fills it up, and asyncpg need not look at each (a tenth of settling)."""
    return None if all(value is None for value in values) else list(values)


def _row(outcome: Outcome) -> _Row:
    match outcome:
        case Completed(result, message):
            return _with_result("completed", result, message)
        case Partial(result, message):
            return _with_result("partial", result, message)
        case Failed(error):
            return _Row("failed", error=_text(error))
        case Errored(error, retry_after_seconds):
            return _Row("error", error=_text(error), delay_seconds=_delay(retry_after_seconds))
        case Snoozed(for_seconds, message):
            return _Row("snoozed", message=_text(message), delay_seconds=_delay(for_seconds))
        case _:
            assert_never(outcome)


def _with_result(state: str, result: dict[str, Any] | None, message: str | None) -> _Row:
    """A result that the database can't hold fails its own job, and not the batch."""
    try:
        return _Row(state, result=None if result is None else encode(result), message=_text(message))
    except ValueError as error:
        return _Row("failed", error=_text(f"The handler's result is no JSON: {error}"))


def _text(value: str | None) -> str | None:
    """Error messages come from anywhere: what PostgreSQL's text can't hold is replaced."""
    return None if value is None else value.replace("\0", "\ufffd").encode(errors="replace").decode()


def _delay(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_DELAY_SECONDS) if seconds == seconds else 0.0
