"""A job as its handler sees it, and the states it goes through."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg


class JobState(StrEnum):
    """The states of a job, as the database spells them."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self not in (JobState.WAITING, JobState.PENDING, JobState.RUNNING)


class Job(NamedTuple):
    """A claimed job. The fields stand in the order of the claim's columns (sql/claim.sql).

    A tuple, since a frozen dataclass takes five times as long to make, for every job that runs.
    """

    id: int
    job_type: str
    payload: dict[str, Any]
    pipeline_id: UUID
    parent_id: int | None
    queue: str
    priority: int
    tags: list[str]
    scope: str | None
    attempt_id: UUID
    attempts: int
    quota: int
    timeout_seconds: float | None
    created_at: datetime
    started_at: datetime
    locked_at: datetime

    @classmethod
    def from_record(cls, record: asyncpg.Record) -> "Job":
        identity, job_type, payload, *rest = record
        # A connection may have a codec for jsonb, or not.
        return cls(identity, job_type, json.loads(payload) if isinstance(payload, str) else payload, *rest)
