"""Builds a pipeline from the jobs of a request, resolving names to jobs."""

from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter

from pydantic_core import from_json

from reactor.client.pipeline import Node, Pipeline
from reactor_http.api.read_request import invalid
from reactor_http.api.requests import PipelineRequest

MAX_DEPENDENCIES = 100_000


def check_dependency_count(body: bytes) -> None:
    """Before validation, which takes more than ten microseconds per dependency: a body has room for four million."""
    try:
        content = from_json(body)
    except ValueError:
        return  # validation reports it
    jobs = content.get("jobs") if isinstance(content, dict) else None
    lists = [job.get("depends_on") for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    count = sum(len(one) for one in lists if isinstance(one, list))
    if count > MAX_DEPENDENCIES:
        raise invalid({"jobs": f"have {count:,} dependencies in all; the limit is {MAX_DEPENDENCIES:,}"})


def build_pipeline(
    request: PipelineRequest, submitted_by: Callable[[str | None], str | None]
) -> tuple[Pipeline, list[str]]:
    """The pipeline, and the names of its jobs in the response.

    `submitted_by` returns what is stored of what a job declares.
    """
    names = [job.name or f"#{number}" for number, job in enumerate(request.jobs, 1)]
    index_of: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in index_of:
            raise invalid({f"jobs[{index}].name": f"is already the name of jobs[{index_of[name]}]"})
        index_of[name] = index
    _check_exclusion(request)
    _check_cycles(request, index_of)
    pipeline = Pipeline(request.pipeline_id)
    nodes = [Node(pipeline, index + 1) for index in range(len(request.jobs))]
    for index, job in enumerate(request.jobs):
        needs: dict[Node | int, str] = {}
        for number, dependency in enumerate(job.depends_on):
            field = f"jobs[{index}].depends_on[{number}]"
            if isinstance(dependency.job, str) and dependency.job not in index_of:
                raise invalid({field: f"names {dependency.job[:200]!r}, which is not a job of this pipeline"})
            other = nodes[index_of[dependency.job]] if isinstance(dependency.job, str) else dependency.job
            if other == nodes[index]:
                raise invalid({field: "names the job itself"})
            if needs.setdefault(other, dependency.needs) != dependency.needs:
                raise invalid({field: "names a job twice, with different needs"})
        pipeline.job(
            job.job_type,
            job.payload,
            depends_on=[other for other, kind in needs.items() if kind == "completed"],
            after_end_of=[other for other, kind in needs.items() if kind == "finished"],
            **job.options() | {"submitted_by": submitted_by(job.submitted_by)},
        )
    return pipeline, names


def _check_cycles(request: PipelineRequest, index_of: dict[str, int]) -> None:
    """Here, because the database would describe a cycle by ids that the client has never seen."""
    depends_on = [[index_of[one.job] for one in job.depends_on if one.job in index_of] for job in request.jobs]
    try:
        TopologicalSorter(dict(enumerate(depends_on))).prepare()
    except CycleError as error:
        first, *others = sorted(set(error.args[1]))
        if others:
            listed = ", ".join(f"jobs[{index}]" for index in others[:10])
            raise invalid({f"jobs[{first}].depends_on": f"leads back to the job itself, through {listed}"}) from None


def _check_exclusion(request: PipelineRequest) -> None:
    """Jobs that exclude each other: the database would reject the second because of the first, and roll both back."""
    holders: dict[tuple[str, str | None, str | None], int] = {}
    for index, job in enumerate(request.jobs):
        held = {"idempotency_key": (job.job_type, job.idempotency_key), "scope": (None, job.scope)}
        for field, (kind, value) in held.items():
            if value is None or (field == "scope" and not job.exclusive):
                continue
            other = holders.setdefault((field, kind, value), index)
            if other != index:
                what = "which is exclusive, too" if field == "scope" else "which has the same job_type"
                raise invalid({f"jobs[{index}].{field}": f"is already used by jobs[{other}], {what}"})
