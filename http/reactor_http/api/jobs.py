"""The endpoints for jobs: submit, list, show, and explain why a job is not running."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reactor.client.submit_unless_draining import submit_unless_draining
from reactor.database.connection import Connection
from reactor.errors import JobUnknown
from reactor.queries.jobs import Filters, find_job_as_stored, list_jobs
from reactor.queries.logs import LogFilters, list_logs
from reactor.queries.why import why as find_reasons
from reactor_http.api import responses
from reactor_http.api.access import Permission, submitted_by
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.read_request import job_id, read_body, read_query
from reactor_http.api.render_response import NO_STORE, join_json, json_response, response_with_etag, url_of
from reactor_http.api.requests import JobRequest, JobsQuery, LogsQuery
from reactor_http.problem import Problem
from reactor_http.state import state_of

_LISTED_FIELDS = tuple(responses.Job.model_fields)
_STORED_AS_JSON = (
    "payload",
    "result",
    "meta",
    "step_counts",
    "durations",
    "dependencies",
    "earlier_attempts",
)


async def submit_job(request: Request) -> Response:
    body = await read_body(request, JobRequest)
    async with state_of(request).connection() as connection:
        job = body.new_job(submitted_by(request, body.submitted_by))
        submitted = await submit_unless_draining(connection, job)
        other = None if submitted.outcome == "created" else await find_listed(connection, submitted.id)
    if submitted.outcome == "busy":
        raise scope_conflict(submitted.id, other)
    content = {"id": submitted.id, "pipeline_id": submitted.pipeline_id, "outcome": submitted.outcome}
    location = url_of(request, f"/v1/jobs/{submitted.id}")
    if other:
        return json_response(content | {"job": other}, 200, location=location)
    warnings = [submitted.warning._asdict()] if submitted.warning else []
    return json_response(content | {"warnings": warnings}, 202, location=location)


async def find_jobs(request: Request) -> Response:
    query = read_query(request, JobsQuery)
    filters = query.model_dump(exclude={"limit", "before"})
    async with state_of(request).connection() as connection:
        facts = None if query.meta is None else json.loads(query.meta)
        page = await list_jobs(connection, Filters(**filters | {"meta": facts}), query.limit, query.before)
    next_page = page.before and url_of(request, "/v1/jobs", **filters, limit=query.limit, before=page.before)
    return json_response({"jobs": [_only_listed(job) for job in page.jobs], "next": next_page})


async def show_job(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        job = await find_job_as_stored(connection, job_id(request))
    stored = {name: job.pop(name) for name in _STORED_AS_JSON}
    # Steps have the same fields here as in a pipeline.
    stored["steps"] = [f'{{"job_id":{job["id"]},{step[1:]}' for step in job.pop("steps")]
    version = job.pop("version")
    return response_with_etag(request, join_json(job, stored), version)


async def show_logs(request: Request) -> Response:
    query, identity = read_query(request, LogsQuery), job_id(request)
    filters = query.model_dump(include={"attempt", "step", "level"})
    async with state_of(request).connection() as connection:
        page = await list_logs(
            connection, identity, LogFilters(**filters), query.limit, after=query.after, before=query.before
        )

    def page_url(**place: int | None) -> str:
        return url_of(request, f"/v1/jobs/{identity}/logs", **filters, limit=query.limit, **place)

    lines = [join_json(line, {"fields": line.pop("fields")}).decode() for line in page.lines]
    place = {
        "job_state": page.job_state,
        "previous": page.before and page_url(before=page.before),
        "next": page_url(after=page.after, before=query.before) if page.has_more else None,
        "after": page.after,
    }
    return Response(join_json(place, {"lines": lines}), headers=NO_STORE, media_type="application/json")


async def show_why(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        found = await find_reasons(connection, job_id(request))
    return json_response(found)


async def find_listed(connection: Connection, identity: int) -> dict[str, Any]:
    """One job with the fields that lists show."""
    page = await list_jobs(connection, limit=1, before=identity + 1)
    if not page.jobs or page.jobs[0]["id"] != identity:
        raise JobUnknown(identity)
    return _only_listed(page.jobs[0])


def scope_conflict(holder_id: int, job: dict[str, Any] | None) -> Problem:
    return Problem(
        409,
        f"Job {holder_id} holds the exclusive scope. Nothing was created.",
        f"Wait for job {holder_id} to finish, or cancel it. A cancelled job holds its scope until its handler stops.",
        job=job,
    )


def _only_listed(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in _LISTED_FIELDS}


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs",
        submit_job,
        "Submit a job",
        Permission.SUBMIT,
        {202: responses.CreatedJob, 200: responses.ExistingJob},
        {409: responses.ScopeConflict},
        body=JobRequest,
        sends_location=True,
    ),
    Endpoint(
        "GET",
        "/v1/jobs",
        find_jobs,
        "List jobs, newest first",
        Permission.VIEW,
        {200: responses.JobPage},
        query=JobsQuery,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job_id}",
        show_job,
        "Show a job with its steps, dependencies and earlier attempts",
        Permission.VIEW,
        {200: responses.FullJob, 304: None},
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job_id}/why",
        show_why,
        "Explain why a job is not running, where it runs, or how it ended",
        Permission.VIEW,
        {200: responses.Why},
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{job_id}/logs",
        show_logs,
        "Show what a job's handler logged, by default the last lines",
        Permission.VIEW,
        {200: responses.LogPage},
        query=LogsQuery,
    ),
)
