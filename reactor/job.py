"""A job as its handler receives it, and the states of jobs."""

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID


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
    """A claimed job. The order of the fields is that of the columns a claim returns.

    A NamedTuple because one is created for every job, and a frozen dataclass takes five times as long.
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
    delivery: str | None = None
    """As its producer chose it; None: the handler's."""
