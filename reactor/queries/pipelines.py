"""Lists pipelines, newest first, and finds one with its state, jobs and steps."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import PipelineUnknown

MAX_JOBS = 20_000


@dataclass(frozen=True)
class PipelineFilters:
    """Conditions that listed pipelines meet; None: any value. Type, scope and tag are those of the first job."""

    state: str | None = None
    job_type: str | None = None
    scope: str | None = None
    tag: str | None = None
    search: str | None = None
    """A pipeline's id or a prefix of it, the id of one of its jobs, or part of its type or scope."""


@dataclass(frozen=True)
class PipelinePage:
    pipelines: list[dict[str, Any]]
    before: int | None
    """The value of `before` for the next page; None on the last page. A page that is not the last may be short."""


@dataclass(frozen=True)
class WholePipeline:
    """A pipeline as JSON text that can be sent unchanged: it may have ten thousand jobs."""

    pipeline: str
    jobs: str
    steps: str
    version: str
    """Changes with the rows, and not with the time that passes, as durations do."""


async def list_pipelines(
    connection: Connection, filters: PipelineFilters | None = None, limit: int = 50, before: int | None = None
) -> PipelinePage:
    """A page of pipelines, newest first by the id of their first job. An exact match by id comes before all others."""
    filters = filters or PipelineFilters()
    pipeline_id, job_id = _parse_id(filters.search)
    exact = []
    if pipeline_id or job_id:
        found = await _fetch(connection, filters, 1, None, pipeline_id, job_id)
        exact = found.pipelines
    if pipeline_id:
        return PipelinePage(exact if before is None else [], None)
    page = await _fetch(connection, filters, limit, before)
    seen = {pipeline["pipeline_id"] for pipeline in exact}
    rest = [pipeline for pipeline in page.pipelines if pipeline["pipeline_id"] not in seen]
    return PipelinePage((exact if before is None else []) + rest, page.before)


async def find_pipeline(connection: Connection, pipeline_id: UUID) -> dict[str, Any]:
    """A pipeline's derived state, its progress, and the number of its jobs in each state."""
    record = await connection.fetchrow(statements.FIND_PIPELINE, pipeline_id)
    if record is None:
        raise PipelineUnknown(pipeline_id)
    return dict(record)


async def find_whole_pipeline(connection: Connection, pipeline_id: UUID) -> WholePipeline:
    """A pipeline with its first 20,000 jobs in id order, their dependencies and their steps."""
    record = await connection.fetchrow(statements.PIPELINE_WITH_JOBS, pipeline_id, MAX_JOBS)
    if record is None:
        raise PipelineUnknown(pipeline_id)
    return WholePipeline(*record)


async def _fetch(
    connection: Connection,
    filters: PipelineFilters,
    limit: int,
    before: int | None,
    pipeline_id: UUID | None = None,
    job_id: int | None = None,
) -> PipelinePage:
    records = await connection.fetch(
        statements.LIST_PIPELINES,
        before,
        limit + 1,
        filters.state,
        filters.job_type,
        filters.scope,
        filters.tag,
        None if pipeline_id or job_id else filters.search,
        pipeline_id,
        job_id,
    )
    pipelines = [dict(record) for record in records if record["first_id"] is not None]
    for pipeline in pipelines:
        del pipeline["next_before"]
    if len(pipelines) > limit:
        return PipelinePage(pipelines[:limit], pipelines[limit - 1]["first_id"])
    return PipelinePage(pipelines, records[0]["next_before"])


def _parse_id(search: str | None) -> tuple[UUID | None, int | None]:
    """The pipeline id or job id that the search text is, if any."""
    if search is None:
        return None, None
    if search.isascii() and search.isdigit():
        number = int(search) if len(search) <= 19 else 0
        return None, number if 0 < number < 2**63 else None
    try:
        return UUID(search), None
    except ValueError:
        return None, None
