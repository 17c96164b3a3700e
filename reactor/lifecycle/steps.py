"""Writes the states of a job's steps, each only if its attempt still holds the job."""

import json
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


async def stored_steps(connection: Connection, job_id: int) -> dict[str, Stored]:
    records = await connection.fetch(statements.LIST_STEPS, job_id)
    return {
        name: Stored(StepState(state), None if result is None else json.loads(result))
        for name, state, result in records
    }


async def plan_steps(
    connection: Connection,
    job_id: int,
    attempt_id: UUID,
    positions: Mapping[str, int],
    *,
    started: bool,
    lock_wait_ms: int | None = None,
) -> bool:
    """Steps that are planned, or have started. False: the attempt is stale, and nothing was written."""
    names, numbers = list(positions), list(positions.values())
    row = await connection.fetchrow(statements.PLAN_STEPS, job_id, attempt_id, names, numbers, started, lock_wait_ms)
    return row is not None


async def record_steps(
    connection: Connection, records: Sequence[Record], *, lock_wait_ms: int | None = None
) -> set[UUID]:
    """The attempts that still held their jobs; nothing was written of the others. At most one record a step."""
    columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in Record._fields]
    rows = await connection.fetch(statements.RECORD_STEPS, *columns, lock_wait_ms)
    return {row[0] for row in rows}
