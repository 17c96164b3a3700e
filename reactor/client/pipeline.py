"""Builds jobs that depend on each other, to be submitted all at once."""

import json
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack, overload
from uuid import UUID

from reactor.client.drivers import AsyncConnection, Rows, SyncConnection, fetch
from reactor.client.submit import JobOptions, NewJob, Submitted, encode_jobs, new_job
from reactor.database import statements
from reactor.errors import JobInvalid


@dataclass(frozen=True, slots=True)
class Node:
    """A job in a pipeline that has not been submitted yet."""

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


class Pipeline:
    """```
    pipeline = Pipeline()
    read = pipeline.job("csv_ingest", {"file": "a.csv"})
    years = [pipeline.job("recalculate", {"year": year}, after=[read]) for year in (2024, 2025)]
    pipeline.job("aggregate", after=years)
    submitted = await pipeline.submit(connection)
    ```
    """

    def __init__(self, pipeline_id: UUID | None = None) -> None:
        """`pipeline_id`: to add to one that exists."""
        self._pipeline_id = pipeline_id
        self._jobs: list[NewJob] = []
        self._needs: list[list[dict[str, Any]]] = []

    def job(
        self,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        after: Iterable[Node | int] = (),
        after_end_of: Iterable[Node | int] = (),
        **options: Unpack[JobOptions],
    ) -> Node:
        """Adds a job. It starts when all of `after` are completed, and is cancelled if one of them ends otherwise.

        Of `after_end_of` any end will do. Both take jobs of this pipeline, and ids of jobs that exist.
        """
        job = new_job(job_type, payload, {"pipeline_id": self._pipeline_id, **options})
        needs = [self._need(one, "completed") for one in after] + [self._need(one, "finished") for one in after_end_of]
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
        """Creates all of its jobs or none, in the caller's transaction. Await it if the connection is asynchronous."""
        rows = fetch(connection, statements.SUBMIT_PIPELINE, self.encode())
        return self._later(rows) if isinstance(rows, Awaitable) else submitted_pipeline(rows)

    async def _later(self, rows: Awaitable[Rows]) -> SubmittedPipeline:
        return submitted_pipeline(await rows)

    @property
    def new_jobs(self) -> Sequence[NewJob]:
        return tuple(self._jobs)

    def encode(self) -> str:
        """As reactor.submit_pipeline takes them. Raises JobInvalid for what no database could hold."""
        if not self._jobs:
            raise JobInvalid("the pipeline has no job", "Add one with pipeline.job(...).")
        specs = json.loads(encode_jobs(self._jobs))
        for spec, needs in zip(specs, self._needs, strict=True):
            spec["depends_on"] = needs
        return json.dumps(specs)

    def _need(self, one: Node | int, needs: str) -> dict[str, Any]:
        if isinstance(one, int):
            return {"id": one, "needs": needs}
        if one.pipeline is not self:
            raise JobInvalid("it depends on a job of another pipeline", "Submit that one first, and give the job's id.")
        return {"place": one.place, "needs": needs}


def submitted_pipeline(rows: Rows) -> SubmittedPipeline:
    answers = [Submitted(*row[1:]) for row in rows]
    for answer in answers:
        if answer.outcome != "created":
            return SubmittedPipeline(answer.pipeline_id, [], answer.outcome, answer)
    return SubmittedPipeline(answers[0].pipeline_id, [answer.id for answer in answers], "created")
