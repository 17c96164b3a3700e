"""Writes how attempts ended, many at once, each only if it still holds its job."""

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple, assert_never
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode, storable
from reactor.job import JobState
from reactor.lifecycle.log_writer import columns, trimmed
from reactor.log import get_logger
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Released, Snoozed

log = get_logger(__name__)

_SHORTEST_DELAY_SECONDS = 1e-6  # the resolution of timestamptz
_LOCK_WAIT_MS = 250
_LONGEST_DELAY_SECONDS = 10 * 365 * 86400.0
_STATES = {state.value: state for state in JobState}
_job_id = attrgetter("job_id")


class _Row(NamedTuple):
    outcome: str
    result: str | None = None
    error: str | None = None
    message: str | None = None
    delay_seconds: float | None = None


async def settle(
    connection: Connection,
    endings: Sequence[Ending],
    *,
    lock_wait_ms: int | None = None,
    statement_seconds: float | None = None,
) -> dict[int, JobState]:
    """The state of every job that was written. A job that is missing was not the attempt's any more.

    Children are created in the same commit, in the caller's transaction if there is one. `statement_seconds`: instead
    of the server's statement_timeout, which is meant for other statements than the end of a job with many children.
    """
    if connection.is_in_transaction():
        return await _settle(connection, endings, lock_wait_ms)
    if statement_seconds is None and not any(ending.children for ending in endings):
        return await _settle(connection, endings, lock_wait_ms)
    async with connection.transaction(isolation="read_committed"):
        if statement_seconds is not None:
            await allow_long_end(connection, statement_seconds)
        states = await _settle(connection, endings, lock_wait_ms)
    for ending in endings:
        if ending.children:
            ending.children.commit()
    return states


async def allow_long_end(connection: Connection, seconds: float) -> None:
    """Until the transaction ends, or the client has gone."""
    await connection.execute(statements.ALLOW_LONG_END, round(seconds * 1000))


async def _settle(connection: Connection, endings: Sequence[Ending], lock_wait_ms: int | None) -> dict[int, JobState]:
    in_lock_order = sorted(endings, key=_job_id)
    has_children = any(ending.children for ending in in_lock_order)
    created = await _chain(connection, in_lock_order) if has_children else {}
    rows = [_row(ending.outcome) for ending in in_lock_order]
    parameters = [
        [ending.job_id for ending in in_lock_order],
        [ending.attempt_id for ending in in_lock_order],
        *(_column(column) for column in (zip(*rows, strict=True) if rows else [()] * len(_Row._fields))),
        [created.get(ending.job_id) for ending in in_lock_order] if created else None,
        lock_wait_ms,
    ]
    if any(ending.log is not None for ending in in_lock_order):
        records = await _settle_with_logs(connection, in_lock_order, parameters)
    else:
        records = await connection.fetch(statements.SETTLE, *parameters)
    if records and records[0][0] is None:
        return dict.fromkeys([ending.job_id for ending in in_lock_order], JobState.COMPLETED)
    return {record[0]: _STATES[record[1]] for record in records}


async def _settle_with_logs(connection: Connection, endings: Sequence[Ending], parameters: list[Any]) -> list[Any]:
    """The lines stay in flight: the caller knows whether all of this is committed."""
    times = Counter(ending.job_id for ending in endings)
    # Which of two attempts at a job held it, the answer does not say.
    logs = [ending.log if times[ending.job_id] == 1 else None for ending in endings]
    lines = [job_log.take(0, is_end=True) if job_log is not None else [] for job_log in logs]
    try:
        records = await connection.fetch(
            statements.SETTLE_WITH_LOGS,
            *parameters,
            [job_log.attempt if job_log is not None else None for job_log in logs],
            trimmed(job_log for job_log in logs if job_log is not None),
            next((job_log.max_attempts for job_log in logs if job_log is not None), 1),
            *columns(connection, lines),
        )
    except BaseException:
        for job_log, taken in zip(logs, lines, strict=True):
            if job_log is not None and taken:
                job_log.put_back()
        raise
    if records and records[0][2] is not None and next(one for one in logs if one is not None).note_refusal():
        log.warning("logs of handlers can't be stored", error=records[0][2], jobs=len(endings))
    return records


def close_logs(endings: Sequence[Ending]) -> None:
    """The attempts have ended."""
    for ending in endings:
        if ending.log is not None:
            ending.log.close()


def _row(outcome: Outcome) -> _Row:
    match outcome:
        case Completed(result, message):
            return _with_result("completed", result, message)
        case Partial(result, message):
            return _with_result("partial", result, message)
        case Failed(error, result, message):
            return _with_result("failed", result, message, error)
        case Errored(error, retry_after_seconds):
            return _Row("error", error=storable(error), delay_seconds=_delay(retry_after_seconds))
        case Snoozed(for_seconds, message):
            return _Row("snoozed", message=_storable(message), delay_seconds=_delay(for_seconds))
        case Released(error, retry_after_seconds):
            return _Row("released", error=storable(error), delay_seconds=_delay(retry_after_seconds))
        case _:
            assert_never(outcome)


def _with_result(state: str, result: dict[str, Any] | None, message: str | None, error: str | None = None) -> _Row:
    """A result that the database can't hold fails its own job, not the batch."""
    try:
        encoded = None if result is None else encode(result)
    except ValueError as mistake:
        return _Row("failed", error=storable(f"The handler's result is not valid JSON: {mistake}"))
    return _Row(state, encoded, _storable(error), _storable(message))


def _column(values: tuple[Any, ...]) -> list[Any] | None:
    """None if all are None: unnest fills it up, and asyncpg need not encode each (a tenth of settling)."""
    return None if all(value is None for value in values) else list(values)


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _delay(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST_DELAY_SECONDS) if seconds == seconds else 0.0


async def _chain(connection: Connection, in_lock_order: Sequence[Ending]) -> dict[int, int]:
    """How many children each job got that has some. Locks the other jobs too, which the settle would lock later."""
    children = {ending.job_id: ending.children for ending in in_lock_order if ending.children}
    for chained in children.values():
        chained.begin()
    records = await connection.fetch(
        statements.CHAIN,
        [ending.job_id for ending in in_lock_order],
        [ending.attempt_id for ending in in_lock_order],
        [ending.children.as_json if ending.children else None for ending in in_lock_order],
    )
    for job_id, ids, outcomes in records:
        children[job_id].find(ids, outcomes)
        if busy := [holder for holder, outcome in zip(ids, outcomes, strict=True) if outcome == "busy"]:
            log.warning("chained jobs left out", job_id=job_id, busy_with=busy)
    return {job_id: outcomes.count("created") for job_id, _, outcomes in records}


async def abandon(connection: Connection, job_id: int, attempt_id: UUID, outcome: Errored | Failed) -> JobState | None:
    """Ends an attempt whose handler does not stop. Its scope stays held. None: it was stale."""
    row = _row(outcome)
    # A delay of 0 would make the job ready in this commit, while its handler still runs.
    delay_seconds = None if row.delay_seconds is None else max(row.delay_seconds, _SHORTEST_DELAY_SECONDS)
    record = await connection.fetchrow(
        statements.SETTLE,
        [job_id],
        [attempt_id],
        ["abandoned"],
        None,
        [row.error],
        None,
        [delay_seconds],
        None,
        _LOCK_WAIT_MS,
    )
    return _STATES[record["state"]] if record else None


async def settled(connection: Connection, endings: Sequence[Ending]) -> dict[int, JobState]:
    """Those that took effect, for when the answer to `settle` was lost."""
    records = await connection.fetch(
        statements.FIND_SETTLED, [ending.job_id for ending in endings], [ending.attempt_id for ending in endings]
    )
    return {record["id"]: _STATES[record["state"]] for record in records}


async def releases(connection: Connection, job_id: int) -> int:
    """How often the job was released after it had started."""
    count: int = await connection.fetchval(statements.COUNT_RELEASES, job_id)
    return count
