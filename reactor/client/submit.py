"""Submits jobs in the caller's transaction."""

from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, overload
from uuid import UUID

from reactor.client.drivers import AsyncConnection, Rows, SyncConnection, fetch
from reactor.client.submitted import Kind, Submitted, read_submitted
from reactor.database import statements
from reactor.database.jsonb import encode
from reactor.errors import JobInvalid

Delivery = Literal["at_least_once", "at_most_once"]


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to be submitted. docs/sql.md describes the fields."""

    job_type: str
    payload: Mapping[str, Any] | None = None
    pipeline_id: UUID | None = None
    queue: str = "default"
    priority: int = 0
    run_after: datetime | None = None
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    tags: Sequence[str] = ()
    scope: str | None = None
    exclusive: bool = False
    idempotency_key: str | None = None
    lane: str | None = None
    meta: Mapping[str, Any] | None = None
    submitted_by: str | None = None
    delivery: Delivery | None = None
    steps: Sequence[str] = ()
    """The names of its steps, where they are known: they exist, and are counted, before a worker claims the job."""


class JobOptions(TypedDict, total=False):
    """The optional fields of NewJob, as keyword arguments of `submit`, `ctx.chain` and `Pipeline.job`.

    A wrapper passes them on with `**options: Unpack[JobOptions]`.
    """

    pipeline_id: UUID | None
    queue: str
    priority: int
    run_after: datetime | None
    max_attempts: int | None
    timeout_seconds: float | None
    tags: Sequence[str]
    scope: str | None
    exclusive: bool
    idempotency_key: str | None
    lane: str | None
    meta: Mapping[str, Any] | None
    submitted_by: str | None
    delivery: Delivery | None
    steps: Sequence[str]


# Coroutine rather than Awaitable: mypy and pyright report a coroutine that is not awaited, by default.
@overload
def submit(
    connection: SyncConnection, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
) -> Submitted: ...
@overload
def submit(
    connection: AsyncConnection, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
) -> Coroutine[Any, Any, Submitted]: ...
def submit(
    connection: "SyncConnection | AsyncConnection",
    job_type: str,
    payload: Mapping[str, Any] | None = None,
    **options: Unpack[JobOptions],
) -> Submitted | Coroutine[Any, Any, Submitted]:
    """Creates one job in the caller's transaction. Await it if the connection is asynchronous.

    Raises PayloadRefused if the payload does not fit the schema of a known type; the transaction can go on.
    """
    job = new_job(job_type, payload, options)
    rows = fetch(connection, statements.SUBMIT, encode_jobs([job]))
    return _first_later(rows, job) if isinstance(rows, Awaitable) else first_submitted(rows, job)


@overload
def submit_many(connection: SyncConnection, jobs: Iterable[NewJob]) -> list[Submitted]: ...
@overload
def submit_many(connection: AsyncConnection, jobs: Iterable[NewJob]) -> Coroutine[Any, Any, list[Submitted]]: ...
def submit_many(
    connection: "SyncConnection | AsyncConnection", jobs: Iterable[NewJob]
) -> list[Submitted] | Coroutine[Any, Any, list[Submitted]]:
    """Creates many jobs in one statement, all or none, and returns them in their order.

    Await it if the connection is asynchronous. Raises PayloadRefused as `submit` does.
    """
    given = list(jobs)
    rows = fetch(connection, statements.SUBMIT, encode_jobs(given))
    return _all_later(rows, given) if isinstance(rows, Awaitable) else read_submitted(rows, kinds_of(given))


def new_job(job_type: str, payload: Mapping[str, Any] | None, options: Mapping[str, Any]) -> NewJob:
    try:
        return NewJob(job_type=job_type, payload=payload, **options)
    except TypeError as error:
        known = ", ".join(field.name for field in fields(NewJob))
        raise JobInvalid(str(error).removeprefix("NewJob.__init__() "), f"The fields of a job are: {known}.") from None


async def _first_later(rows: Awaitable[Rows], job: NewJob) -> Submitted:
    return first_submitted(await rows, job)


async def _all_later(rows: Awaitable[Rows], jobs: Sequence[NewJob]) -> list[Submitted]:
    return read_submitted(await rows, kinds_of(jobs))


def first_submitted(rows: Rows, job: NewJob) -> Submitted:
    return read_submitted(rows, kinds_of([job]), is_single=True)[0]


def kinds_of(jobs: Iterable[NewJob]) -> list[Kind]:
    return [Kind(job.job_type, job.queue) for job in jobs]


def encode_jobs(jobs: Iterable[NewJob]) -> str:
    """The jobs as JSON for reactor.submit_many. Raises JobInvalid for values that can't be stored."""
    return encode_arguments([arguments_of(job) for job in jobs])


def encode_arguments(jobs: list[dict[str, Any]]) -> str:
    try:
        return encode(jobs)
    except ValueError as error:
        raise JobInvalid(
            f"its payload or meta can't be encoded as JSON: {error}", "Use strings, numbers, lists and objects."
        ) from error


def arguments_of(job: NewJob) -> dict[str, Any]:
    if job.run_after is not None and job.run_after.tzinfo is None:
        raise JobInvalid("run_after has no time zone", "Use datetime.now(UTC), or another aware datetime.")
    arguments = {field.name: getattr(job, field.name) for field in fields(NewJob)}
    arguments["payload"] = dict(job.payload or {})
    arguments["tags"] = list(job.tags)
    arguments["meta"] = dict(job.meta) if job.meta else None
    arguments["pipeline_id"] = str(job.pipeline_id) if job.pipeline_id else None
    arguments["run_after"] = job.run_after.isoformat() if job.run_after else None
    del arguments["steps"]
    if job.steps:
        arguments["steps"] = _step_names(job.steps)
    return arguments


def _step_names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise JobInvalid("steps is not a list of texts", 'Name each step, such as steps=["2026-01-16", "2026-01-17"].')
    if len(set(names)) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise JobInvalid(f"the step {twice[:100]!r} is named twice", "Give each step of a job a name of its own.")
    return list(names)
