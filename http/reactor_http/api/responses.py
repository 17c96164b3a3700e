"""Models of response bodies, for /openapi.json. The bodies themselves come from the database and are not validated."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from reactor.job import JobState

PipelineState = Literal["running", "completed", "partial", "failed", "cancelled"]


class ResponseBody(BaseModel):
    # Built when /openapi.json is requested: building all models would add a tenth of a second to every start.
    model_config = ConfigDict(use_attribute_docstrings=True, defer_build=True)


class AttemptDurations(ResponseBody):
    """In seconds."""

    waited: float
    """For dependencies, `run_after` or a backoff, until it was due."""
    queued: float
    """From then until it was claimed: for a slot, its scope, a limit or a paused queue."""
    ran: float
    total: float


class Durations(AttemptDurations):
    """Of all attempts together, up to the time of the response."""

    attempt: AttemptDurations
    """Of the latest attempt."""


class EarlierDurations(ResponseBody):
    """In seconds; null: unknown."""

    waited: float | None
    queued: float | None
    ran: float | None
    total: float | None


class StepCounts(ResponseBody):
    total: int
    pending: int
    running: int
    completed: int
    failed: int
    skipped: int
    current: str | None
    """The step that started last, of those that are running."""


class Job(ResponseBody):
    id: int
    job_type: str | None
    """null: a row adopted from elsewhere, which never runs."""
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
    """The number of attempts allowed; null before the first claim, unless the job has `max_attempts`."""
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
    step_counts: StepCounts | None
    """null: the job has no steps."""
    durations: Durations


class Step(ResponseBody):
    name: str
    position: int
    state: Literal["pending", "running", "completed", "failed", "skipped"]
    error: str | None
    attempts: int
    """How often it has run to an end."""
    max_attempts: int | None
    """How often it may run; null: its handler has not planned it yet."""
    run_after: datetime | None
    """The time of its next run, after one that failed."""
    started_at: datetime | None
    """Of its newest run."""
    finished_at: datetime | None
    ran: float | None
    """The duration of its runs together, in seconds."""


class PipelineStep(Step):
    job_id: int


class FullStep(PipelineStep):
    result: Any


class Dependency(ResponseBody):
    depends_on: int
    needs: Literal["completed", "finished"]
    state: JobState


class EarlierAttempt(ResponseBody):
    attempt_id: UUID
    number: int
    pod: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: Literal["error", "crashed", "lease_lost", "released", "snoozed", "preempted", "retried"]
    error: str | None
    durations: EarlierDurations


class FullJob(Job):
    payload: dict[str, Any]
    result: Any
    max_attempts: int | None
    timeout_seconds: float | None
    idempotency_key: str | None
    lane: str | None
    delivery: Literal["at_least_once", "at_most_once"] | None
    """null: the handler's default."""
    meta: dict[str, Any]
    submitted_by: str
    """The token, what the producer declared, or the database role."""
    attempt_id: UUID | None
    worker_id: UUID | None
    broken_by: int | None
    """The job whose end cancelled this one."""
    dependencies: list[Dependency]
    steps: list[FullStep]
    earlier_attempts: list[EarlierAttempt]


class JobPage(ResponseBody):
    jobs: list[Job]
    next: str | None
    """URL of the next page; null on the last one. A page may be short or empty without being the last."""


class LogLine(ResponseBody):
    id: int
    """Orders the lines of a job."""
    at: datetime
    attempt: int
    attempt_id: UUID
    number: int
    """The position in its attempt, from 1; missing numbers were left out."""
    level: Literal["debug", "info", "warning", "error", "critical"]
    step: str | None
    message: str
    fields: dict[str, Any] | None
    """What was logged with the message; `exception` is a traceback."""


class LogPage(ResponseBody):
    job_state: JobState
    """When the lines were read: after a terminal state no more follow."""
    lines: list[LogLine]
    """In the order of their ids."""
    previous: str | None
    """URL of the lines before these; null: these are the first, or `after` was given."""
    next: str | None
    """URL of the lines after these; null: there are none yet."""
    after: int
    """The value of `after` for lines that follow later."""


class Pipeline(ResponseBody):
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


class PipelinePage(ResponseBody):
    pipelines: list[ListedPipeline]
    next: str | None
    """URL of the next page; null on the last one. A page may be short or empty without being the last."""


class JobInPipeline(Job):
    depends_on: list[int]


class FullPipeline(ResponseBody):
    pipeline: Pipeline
    jobs: list[JobInPipeline]
    """In id order, at most 20,000. GET /v1/jobs?pipeline_id= lists all of them in pages."""
    steps: list[PipelineStep]


class SubmitWarning(ResponseBody):
    code: Literal["no_handler", "no_pod_for_queue"]
    """no_handler: no live pod has a handler for the job type; no_pod_for_queue: none that has works on the queue."""
    message: str


class CreatedJob(ResponseBody):
    id: int
    pipeline_id: UUID
    outcome: Literal["created"]
    warnings: list[SubmitWarning]
    """Why the job would wait, although it was created."""


class ExistingJob(ResponseBody):
    id: int
    pipeline_id: UUID
    outcome: Literal["existing"]
    job: Job


class CreatedPipeline(ResponseBody):
    pipeline_id: UUID
    outcome: Literal["created"]
    jobs: dict[str, int]
    """Ids by name; jobs without a name are numbered from #1."""
    warnings: list[SubmitWarning]
    """Why some of the jobs would wait, although they were created: one for each job type and queue."""


class ExistingPipeline(ResponseBody):
    pipeline_id: UUID
    outcome: Literal["existing"]
    job: Job
    """The holder of the idempotency key."""


class Reason(ResponseBody):
    code: str
    message: str
    facts: dict[str, Any]


class Why(ResponseBody):
    job_id: int
    job_type: str | None
    state: JobState
    reasons: list[Reason]


class ChangedJobs(ResponseBody):
    jobs: dict[str, JobState]
    """The current state of each job."""


class CancelledJobs(ChangedJobs):
    was: dict[str, JobState]
    """The previous state of each job."""


class Worker(ResponseBody):
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
    """Counts that the worker reports; null before its first heartbeat. While its process does not respond, also
    `silent_seconds`, `silent_state` (stopped or blocked) and `silent_pid`, as of the last heartbeat."""


class WorkerList(ResponseBody):
    workers: list[Worker]


class JobType(ResponseBody):
    name: str
    description: str | None
    """The first line of the handler's docstring."""
    queue: str | None
    """The queue that its pods work on, if it is a single one."""
    max_attempts: int | None
    """The handler's default; null: 3."""
    timeout_seconds: float | None
    """The handler's default; null: no timeout."""
    delivery: Literal["at_least_once", "at_most_once"]
    """The handler's default."""
    payload_schema: Any
    """JSON Schema of the payload; null: the handler has no model."""
    is_checked: bool
    """Payloads are checked by the schema when jobs are submitted."""
    published_at: datetime
    last_seen_at: datetime
    """When a live pod last had a handler for it."""
    pods: list[str]
    """Live pods that have a handler for it."""
    queues: list[str] | None
    """The queues that these work on; null: all."""


class JobTypeList(ResponseBody):
    job_types: list[JobType]


class ListedQueue(ResponseBody):
    queue: str
    paused: bool
    max_running: int | None
    running: int
    due: int
    scheduled: int
    waiting: int
    oldest_due_seconds: float | None


class QueueList(ResponseBody):
    queues: list[ListedQueue]
    draining: bool


class ChangedQueue(ResponseBody):
    queue: str
    paused: bool
    was_paused: bool


class LimitValues(ResponseBody):
    max_running: int | None
    rate: int | None
    period_seconds: float
    burst: int | None


class ListedLimit(LimitValues):
    queue: str | None
    """null: any."""
    job_type: str | None
    """null: any."""
    lane: str | None
    """null: all jobs together; *: the jobs of each lane."""
    is_declared: bool
    """Code declares it too."""
    running: int
    """Running jobs that it counts."""


class LimitList(ResponseBody):
    limits: list[ListedLimit]


class ChangedLimit(LimitValues):
    queue: str | None
    job_type: str | None
    lane: str | None
    was_set: bool
    """There was such a limit before."""


class RemovedLimit(ResponseBody):
    queue: str | None
    job_type: str | None
    lane: str | None
    is_declared: bool
    """Code declares it: the next worker that starts writes it again."""


class DrainState(ResponseBody):
    draining: bool


class ChangedDraining(DrainState):
    was_draining: bool


class Schedule(ResponseBody):
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


class ScheduleList(ResponseBody):
    schedules: list[Schedule]


class FieldError(ResponseBody):
    field: str
    message: str


class Problem(ResponseBody):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    """What happened."""
    remedy: str = ""
    """What to do about it."""
    errors: list[FieldError] = Field(default_factory=list)


class ScopeConflict(Problem):
    job: Job
    """The job that holds the scope."""


class StateConflict(Problem):
    state: str
    """The current state."""
