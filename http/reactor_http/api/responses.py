"""What is answered, for /openapi.json: the answers themselves come from the database as they are."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from reactor.job import JobState

PipelineState = Literal["running", "completed", "partial", "failed", "cancelled"]


class Answer(BaseModel):
    # Built when /openapi.json is asked for: to build them all takes a tenth of a second of every start.
    model_config = ConfigDict(use_attribute_docstrings=True, defer_build=True)


class Job(Answer):
    id: int
    job_type: str | None
    """null: a row adopted from elsewhere, which is never run."""
    state: JobState
    queue: str
    priority: int
    scope: str | None
    is_current: bool
    exclusive: bool
    tags: list[str]
    pipeline_id: UUID
    parent_id: int | None
    children: int
    attempts: int
    quota: int | None
    """The attempts granted; null before the first claim, unless the job names them."""
    waiting_on: int
    locked_by: str | None
    locked_at: datetime | None
    progress: float | None = Field(ge=0, le=1)
    status_message: str | None
    error: str | None
    run_after: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Step(Answer):
    name: str
    position: int
    state: Literal["pending", "running", "completed", "failed", "skipped"]
    error: str | None
    started_at: datetime | None
    finished_at: datetime | None


class PipelineStep(Step):
    job_id: int


class FullStep(PipelineStep):
    result: Any


class Dependency(Answer):
    depends_on: int
    needs: Literal["completed", "finished"]
    state: JobState


class EarlierAttempt(Answer):
    attempt_id: UUID
    number: int
    pod: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: Literal["error", "crashed", "lease_lost", "released", "snoozed", "preempted", "retried"]
    error: str | None


class FullJob(Job):
    payload: dict[str, Any]
    result: Any
    max_attempts: int | None
    timeout_seconds: float | None
    idempotency_key: str | None
    attempt_id: UUID | None
    worker_id: UUID | None
    broken_by: int | None
    """The job whose end cancelled this one."""
    dependencies: list[Dependency]
    steps: list[FullStep]
    earlier_attempts: list[EarlierAttempt]


class Jobs(Answer):
    jobs: list[Job]
    next: str | None
    """Where the next page is; null: this was the last. A page may be short, or empty, and not be the last."""


class Pipeline(Answer):
    pipeline_id: UUID
    state: PipelineState
    progress: float = Field(ge=0, le=1)
    jobs: int
    waiting: int
    pending: int
    running: int
    completed: int
    partial: int
    failed: int
    cancelled: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ListedPipeline(Pipeline):
    first_id: int
    job_type: str
    scope: str | None


class Pipelines(Answer):
    pipelines: list[ListedPipeline]
    next: str | None
    """Where the next page is; null: this was the last. A page may be short, or empty, and not be the last."""


class PlannedJob(Job):
    depends_on: list[int]


class WholePipeline(Answer):
    pipeline: Pipeline
    jobs: list[PlannedJob]
    """In id order; the first 20,000. GET /v1/jobs?pipeline_id= pages through more."""
    steps: list[PipelineStep]


class Created(Answer):
    id: int
    pipeline_id: UUID
    outcome: Literal["created"]


class Existing(Answer):
    id: int
    pipeline_id: UUID
    outcome: Literal["existing"]
    job: Job


class CreatedPipeline(Answer):
    pipeline_id: UUID
    outcome: Literal["created"]
    jobs: dict[str, int]
    """The ids by the jobs' names; jobs without one by their place, from 1: #1."""


class ExistingPipeline(Answer):
    pipeline_id: UUID
    outcome: Literal["existing"]
    job: Job
    """The holder of the idempotency key."""


class Reason(Answer):
    code: str
    message: str
    facts: dict[str, Any]


class Why(Answer):
    job_id: int
    job_type: str | None
    state: JobState
    reasons: list[Reason]


class Changed(Answer):
    jobs: dict[str, JobState]
    """The state that each is in now."""


class Cancelled(Changed):
    was: dict[str, JobState]
    """The state that each was in."""


class Worker(Answer):
    id: UUID
    pod: str
    job_types: list[str]
    queues: list[str] | None
    """null: all."""
    capacity: int
    running: int
    started_at: datetime
    heartbeat_at: datetime
    heartbeat_age_seconds: float
    lease_until: datetime
    is_alive: bool
    counts: dict[str, Any] | None = None
    """What it says of itself; null before its first heartbeat."""


class Workers(Answer):
    workers: list[Worker]


class Queue(Answer):
    queue: str
    paused: bool
    max_running: int | None
    running: int
    due: int
    scheduled: int
    waiting: int
    oldest_due_seconds: float | None


class Queues(Answer):
    queues: list[Queue]
    draining: bool


class Paused(Answer):
    queue: str
    paused: bool
    was_paused: bool


class Draining(Answer):
    draining: bool


class Drained(Draining):
    was_draining: bool


class Schedule(Answer):
    name: str
    job_type: str
    payload: Any
    queue: str
    priority: int
    scope: str | None
    exclusive: bool
    tags: list[str]
    max_attempts: int | None
    timeout_seconds: float | None
    cron: str | None
    every_seconds: float | None
    timezone: str
    enabled: bool
    catch_up: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_job_id: int | None
    last_job_state: JobState | None
    error: str | None
    created_at: datetime


class Schedules(Answer):
    schedules: list[Schedule]


class WrongField(Answer):
    field: str
    message: str


class Problem(Answer):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    """What happened."""
    remedy: str = ""
    """What can be done about it."""
    errors: list[WrongField] = Field(default_factory=list)


class Blocked(Problem):
    job: Job
    """Who is in the way."""


class WrongState(Problem):
    state: str
    """That it is in now."""
