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
    """A step that the job has already: of an earlier attempt, or named when the job was submitted."""

    state: StepState
    result: Any
    attempts: int = 0
    """How often it has run to an end."""
    pause_seconds: float | None = None
    """Until it may run again, after a run that failed."""
    is_submitted: bool = False
    """Named when the job was submitted."""


class Record(NamedTuple):
    job_id: int
    attempt_id: UUID
    name: str
    state: StepState
    result: str | None = None
    """As JSON."""
    error: str | None = None
    attempts: int | None = None
    """How often it has run to an end; None: unchanged."""
    pause_seconds: float | None = None
    """Until it runs again."""
    ran_seconds: float | None = None
    """How long the run took that has ended."""
    started: float | None = None
    """When it started, by the monotonic clock of this machine; None: it did not start in this attempt."""


class Progress(NamedTuple):
    """Of a job, as it follows from its steps. None: unchanged."""

    fraction: float | None = None
    message: str | None = None
    counts: str | None = None
    """Its step_counts, as JSON."""


class Planned(NamedTuple):
    position: int
    max_attempts: int


async def plan_steps(
    connection: Connection,
    job_id: int,
    attempt_id: UUID,
    steps: Mapping[str, Planned],
    *,
    started: bool,
    message: str | None = None,
    counts: str | None = None,
    lists_stored: bool = False,
    lock_wait_ms: int | None = None,
) -> dict[str, Stored] | None:
    """Steps that are planned, or have started, and the job's message and step_counts. Returns the steps that the job
    had before, if they are to be listed (then the database counts). None: the attempt is stale, and nothing was
    written."""
    records = await connection.fetch(
        statements.PLAN_STEPS,
        job_id,
        attempt_id,
        list(steps),
        [step.position for step in steps.values()],
        started,
        lock_wait_ms,
        message,
        lists_stored,
        counts,
        [step.max_attempts for step in steps.values()],
    )
    if not records:
        return None
    return {
        name: Stored(StepState(state), None if result is None else json.loads(result), *others)
        for name, state, result, *others in records
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
        [reported.counts for reported in progress.values()],
        lock_wait_ms,
    )
    return {row[0] for row in rows}
