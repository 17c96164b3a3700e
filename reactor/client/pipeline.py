"""Builds a pipeline of jobs with dependencies, and submits it as a whole."""

from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, overload
from uuid import UUID

from reactor.client.drivers import AsyncConnection, Rows, SyncConnection, fetch
from reactor.client.submit import JobOptions, NewJob, arguments_of, encode_arguments, kinds_of, new_job
from reactor.client.submitted import Submitted, SubmitWarning, read_submitted
from reactor.database import statements
from reactor.errors import JobInvalid


@dataclass(frozen=True, slots=True)
class Node:
    """A job of a pipeline that is not submitted yet."""

    pipeline: "Pipeline"
    place: int


@dataclass(frozen=True)
class SubmittedPipeline:
    """The pipeline that `Pipeline.submit` created, or the one of the job that kept it from doing so."""

    id: UUID
    jobs: list[int]
    """In the order in which they were added. Empty unless the pipeline was created."""
    outcome: Literal["created", "existing", "busy"]
    in_the_way: Submitted | None = None
    """existing: the holder of an idempotency key; busy: the job that holds an exclusive scope."""
    warnings: Sequence[SubmitWarning] = ()
    """That no live pod runs some of the jobs: one for each job type and queue."""


class Pipeline:
    """```
    pipeline = Pipeline()
    read = pipeline.job("csv_ingest", {"file": "a.csv"})
    years = [pipeline.job("recalculate", {"year": year}, depends_on=[read]) for year in (2024, 2025)]
    pipeline.job("aggregate", depends_on=years)
    submitted = await pipeline.submit(connection)
    ```
    """

    def __init__(self, pipeline_id: UUID | None = None) -> None:
        """`pipeline_id`: an existing pipeline to add jobs to."""
        self._pipeline_id = pipeline_id
        self._jobs: list[NewJob] = []
        self._needs: list[list[dict[str, Any]]] = []

    def job(
        self,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        depends_on: Iterable[Node | int] = (),
        after_end_of: Iterable[Node | int] = (),
        **options: Unpack[JobOptions],
    ) -> Node:
        """Adds a job. It starts when all of `depends_on` are completed, and is cancelled if one of them ends otherwise.

        Of `after_end_of` any end will do. Both take jobs of this pipeline, and ids of jobs that exist.
        """
        job = new_job(job_type, payload, {"pipeline_id": self._pipeline_id, **options})
        needs = [self._need(one, "completed") for one in depends_on]
        needs += [self._need(one, "finished") for one in after_end_of]
        self._jobs.append(job)
        self._needs.append(needs)
        return Node(self, len(self._jobs))

    @overload
    def submit(self, connection: SyncConnection) -> SubmittedPipeline: ...
    @overload
    def submit(self, connection: AsyncConnection) -> Coroutine[Any, Any, SubmittedPipeline]: ...
    def submit(
        self, connection: "SyncConnection | AsyncConnection"
    ) -> SubmittedPipeline | Coroutine[Any, Any, SubmittedPipeline]:
        """Creates all of its jobs or none, in the caller's transaction. Await it if the connection is asynchronous.

        Raises PayloadRefused if a payload does not fit the schema of a known type; the transaction can go on.
        """
        rows = fetch(connection, statements.SUBMIT_PIPELINE, encode_pipeline(self))
        return self._later(rows) if isinstance(rows, Awaitable) else submitted_pipeline(rows, self)

    async def _later(self, rows: Awaitable[Rows]) -> SubmittedPipeline:
        return submitted_pipeline(await rows, self)

    def _need(self, one: Node | int, needs: str) -> dict[str, Any]:
        if isinstance(one, int):
            return {"id": one, "needs": needs}
        if one.pipeline is not self:
            raise JobInvalid(
                "it depends on a job of another pipeline", "Submit that pipeline first and pass the id of the job."
            )
        return {"place": one.place, "needs": needs}


def new_jobs(pipeline: Pipeline) -> Sequence[NewJob]:
    return tuple(pipeline._jobs)


def encode_pipeline(pipeline: Pipeline) -> str:
    """The jobs as JSON for reactor.submit_pipeline. Raises JobInvalid for values that can't be stored."""
    if not pipeline._jobs:
        raise JobInvalid("the pipeline has no job", "Add one with pipeline.job(...).")
    return encode_arguments(
        [arguments_of(job) | {"depends_on": needs} for job, needs in zip(pipeline._jobs, pipeline._needs, strict=True)]
    )


def submitted_pipeline(rows: Rows, pipeline: Pipeline) -> SubmittedPipeline:
    jobs = read_submitted(rows, kinds_of(pipeline._jobs))
    for job in jobs:
        if job.outcome != "created":
            return SubmittedPipeline(job.pipeline_id, [], job.outcome, job)
    warnings = dict.fromkeys(job.warning for job in jobs if job.warning)
    return SubmittedPipeline(jobs[0].pipeline_id, [job.id for job in jobs], "created", warnings=tuple(warnings))
