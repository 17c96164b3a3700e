"""Writes the states of a job's steps, each only if its attempt still holds the job."""

import json
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection


class StepState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Stored(NamedTuple):
    """A step of an earlier attempt."""

    state: StepState
    result: Any


class Record(NamedTuple):
    job_id: int
    attempt_id: UUID
    name: str
    state: StepState
    result: str | None = None
    """As JSON."""
    error: str | None = None
    started: float | None = None
    """When it started, by the monotonic clock of this machine; None: it did not start in this attempt."""


class Progress(NamedTuple):
    """Of a job, as it follows from its steps. None: unchanged."""

    fraction: float | None = None
    message: str | None = None


async def plan_steps(
    connection: Connection,
    job_id: int,
    attempt_id: UUID,
    positions: Mapping[str, int],
    *,
    started: bool,
    message: str | None = None,
    lists_stored: bool = False,
    lock_wait_ms: int | None = None,
) -> dict[str, Stored] | None:
    """Steps that are planned, or have started, and the job's message. Returns the steps that the job had before, if
    they are to be listed. None: the attempt is stale, and nothing was written."""
    names, numbers = list(positions), list(positions.values())
    records = await connection.fetch(
        statements.PLAN_STEPS, job_id, attempt_id, names, numbers, started, lock_wait_ms, message, lists_stored
    )
    if not records:
        return None
    return {
        name: Stored(StepState(state), None if result is None else json.loads(result))
        for name, state, result in records
        if name is not None
    }


async def record_steps(
    connection: Connection,
    records: Sequence[Record],
    progress: Mapping[UUID, Progress] | None = None,
    *,
    lock_wait_ms: int | None = None,
) -> set[UUID]:
    """With the progress of their attempts. The attempts that still held their jobs; nothing was written of the others.
    At most one record a step."""
    now, progress = time.monotonic(), progress or {}
    columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in Record._fields]
    columns[-1] = [None if started is None else now - started for started in columns[-1]]
    rows = await connection.fetch(
        statements.RECORD_STEPS,
        *columns,
        list(progress),
        [reported.fraction for reported in progress.values()],
        [reported.message for reported in progress.values()],
        lock_wait_ms,
    )
    return {row[0] for row in rows}
