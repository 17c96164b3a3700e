"""The calls for pipelines: submit one, look at many or one."""

from starlette.requests import Request
from starlette.responses import Response

from reactor.client.submit_unless_draining import submit_pipeline_unless_draining
from reactor.queries.pipelines import PipelineFilters, find_whole_pipeline, list_pipelines
from reactor_http.api import responses
from reactor_http.api.access import Permission
from reactor_http.api.endpoint import Call
from reactor_http.api.jobs import busy, listed
from reactor_http.api.pipeline_request import check_needs, plan
from reactor_http.api.read_request import pipeline_id, read_body, read_query
from reactor_http.api.render_response import address, answer, joined, tagged
from reactor_http.api.requests import PipelinesAsked, PipelineSent
from reactor_http.state import edge_of


async def submit_pipeline(request: Request) -> Response:
    pipeline, names = plan(await read_body(request, PipelineSent, check=check_needs))
    async with edge_of(request).connection() as connection:
        made = await submit_pipeline_unless_draining(connection, pipeline)
        other = made.in_the_way
        job = await listed(connection, other.id) if other else None
    if other and made.outcome == "busy":
        raise busy(other.id, job)
    content = {"pipeline_id": made.id, "outcome": made.outcome}
    where = address(request, f"/v1/pipelines/{made.id}")
    if job:
        return answer(content | {"job": job}, 200, location=where)
    return answer(content | {"jobs": dict(zip(names, made.jobs, strict=True))}, 202, location=where)


async def find_pipelines(request: Request) -> Response:
    asked = read_query(request, PipelinesAsked)
    filters = PipelineFilters(asked.state, asked.job_type, asked.scope, asked.tag, asked.q)
    async with edge_of(request).connection() as connection:
        page = await list_pipelines(connection, filters, asked.limit, asked.before)
    query = asked.model_dump() | {"before": page.before}
    return answer({"pipelines": page.pipelines, "next": page.before and address(request, "/v1/pipelines", **query)})


async def show_pipeline(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        found = await find_whole_pipeline(connection, pipeline_id(request))
    return tagged(request, joined({}, {"pipeline": found.pipeline, "jobs": found.jobs, "steps": found.steps}))


CALLS = (
    Call(
        "POST",
        "/v1/pipelines",
        submit_pipeline,
        "Submit jobs that depend on each other, all or none",
        Permission.SUBMIT,
        {202: responses.CreatedPipeline, 200: responses.ExistingPipeline},
        {409: responses.Blocked},
        body=PipelineSent,
        links=True,
    ),
    Call(
        "GET",
        "/v1/pipelines",
        find_pipelines,
        "List pipelines, the newest first",
        Permission.VIEW,
        {200: responses.Pipelines},
        query=PipelinesAsked,
    ),
    Call(
        "GET",
        "/v1/pipelines/{pipeline_id}",
        show_pipeline,
        "One pipeline with its jobs in id order, and their steps",
        Permission.VIEW,
        {200: responses.WholePipeline, 304: None},
    ),
)
