"""The endpoints for pipelines: submit, list and show."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reactor.client.submit_unless_draining import submit_pipeline_unless_draining
from reactor.queries.pipelines import PipelineFilters, find_whole_pipeline, list_pipelines
from reactor_http.api import responses
from reactor_http.api.access import Permission, submitted_by
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.jobs import find_listed, scope_conflict
from reactor_http.api.pipeline_request import build_pipeline, check_dependency_count
from reactor_http.api.read_request import pipeline_id, read_body, read_query
from reactor_http.api.render_response import join_json, json_response, response_with_etag, url_of
from reactor_http.api.requests import PipelineRequest, PipelinesQuery
from reactor_http.state import state_of


async def submit_pipeline(request: Request) -> Response:
    body = await read_body(request, PipelineRequest, check=check_dependency_count)
    pipeline, names = build_pipeline(body, lambda declared: submitted_by(request, declared))
    async with state_of(request).connection() as connection:
        submitted = await submit_pipeline_unless_draining(connection, pipeline)
        holder = submitted.in_the_way
        job = await find_listed(connection, holder.id) if holder else None
    if holder and submitted.outcome == "busy":
        raise scope_conflict(holder.id, job)
    content: dict[str, Any] = {"pipeline_id": submitted.id, "outcome": submitted.outcome}
    location = url_of(request, f"/v1/pipelines/{submitted.id}")
    if job:
        return json_response(content | {"job": job}, 200, location=location)
    content["jobs"] = dict(zip(names, submitted.jobs, strict=True))
    content["warnings"] = [warning._asdict() for warning in submitted.warnings]
    return json_response(content, 202, location=location)


async def find_pipelines(request: Request) -> Response:
    query = read_query(request, PipelinesQuery)
    filters = PipelineFilters(query.state, query.job_type, query.scope, query.tag, query.q)
    async with state_of(request).connection() as connection:
        page = await list_pipelines(connection, filters, query.limit, query.before)
    parameters = query.model_dump() | {"before": page.before}
    next_page = page.before and url_of(request, "/v1/pipelines", **parameters)
    return json_response({"pipelines": page.pipelines, "next": next_page})


async def show_pipeline(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        found = await find_whole_pipeline(connection, pipeline_id(request))
    body = join_json({}, {"pipeline": found.pipeline, "jobs": found.jobs, "steps": found.steps})
    return response_with_etag(request, body, found.version)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/pipelines",
        submit_pipeline,
        "Submit several jobs with dependencies between them, all or none",
        Permission.SUBMIT,
        {202: responses.CreatedPipeline, 200: responses.ExistingPipeline},
        {409: responses.ScopeConflict},
        body=PipelineRequest,
        sends_location=True,
    ),
    Endpoint(
        "GET",
        "/v1/pipelines",
        find_pipelines,
        "List pipelines, newest first",
        Permission.VIEW,
        {200: responses.PipelinePage},
        query=PipelinesQuery,
    ),
    Endpoint(
        "GET",
        "/v1/pipelines/{pipeline_id}",
        show_pipeline,
        "Show a pipeline with its jobs in id order, and their steps",
        Permission.VIEW,
        {200: responses.FullPipeline, 304: None},
    ),
)
