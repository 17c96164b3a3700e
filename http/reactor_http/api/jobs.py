"""The calls for jobs: submit one, look at many or one, ask why it does not run."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reactor.client.submit_unless_draining import submit_unless_draining
from reactor.database.connection import Connection
from reactor.errors import JobUnknown
from reactor.queries.jobs import Filters, find_job_as_stored, list_jobs
from reactor.queries.why import why as find_reasons
from reactor_http.api import responses
from reactor_http.api.access import Permission
from reactor_http.api.endpoint import Call
from reactor_http.api.read_request import job_id, read_body, read_query
from reactor_http.api.render_response import address, answer, joined, tagged
from reactor_http.api.requests import JobsAsked, JobSent
from reactor_http.problem import Problem
from reactor_http.state import edge_of

LISTED = tuple(responses.Job.model_fields)
_STORED = ("payload", "result", "dependencies", "earlier_attempts")


async def submit_job(request: Request) -> Response:
    sent = await read_body(request, JobSent)
    async with edge_of(request).connection() as connection:
        made = await submit_unless_draining(connection, sent.new_job())
        job = None if made.outcome == "created" else await listed(connection, made.id)
    if made.outcome == "busy":
        raise busy(made.id, job)
    content = {"id": made.id, "pipeline_id": made.pipeline_id, "outcome": made.outcome}
    where = address(request, f"/v1/jobs/{made.id}")
    return answer(content | {"job": job}, 200, location=where) if job else answer(content, 202, location=where)


async def find_jobs(request: Request) -> Response:
    asked = read_query(request, JobsAsked)
    chosen = asked.model_dump(exclude={"limit", "before"})
    async with edge_of(request).connection() as connection:
        page = await list_jobs(connection, Filters(**chosen), asked.limit, asked.before)
    onward = page.before and address(request, "/v1/jobs", **chosen, limit=asked.limit, before=page.before)
    return answer({"jobs": [_only_listed(job) for job in page.jobs], "next": onward})


async def show_job(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        job = await find_job_as_stored(connection, job_id(request))
    stored = {name: job.pop(name) for name in _STORED}
    # A step says whose it is, here as in a pipeline.
    stored["steps"] = [f'{{"job_id":{job["id"]},{step[1:]}' for step in job.pop("steps")]
    return tagged(request, joined(job, stored))


async def tell_why(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        found = await find_reasons(connection, job_id(request))
    return answer(found)


async def listed(connection: Connection, identity: int) -> dict[str, Any]:
    """One job as it is in lists."""
    page = await list_jobs(connection, limit=1, before=identity + 1)
    if not page.jobs or page.jobs[0]["id"] != identity:
        raise JobUnknown(identity)
    return _only_listed(page.jobs[0])


def busy(holder_id: int, job: dict[str, Any] | None) -> Problem:
    return Problem(
        409,
        f"Job {holder_id} holds the exclusive scope. Nothing was created.",
        f"Wait until job {holder_id} has ended, or cancel it first.",
        job=job,
    )


def _only_listed(job: dict[str, Any]) -> dict[str, Any]:
    return {name: job[name] for name in LISTED}


CALLS = (
    Call(
        "POST",
        "/v1/jobs",
        submit_job,
        "Submit a job",
        Permission.SUBMIT,
        {202: responses.Created, 200: responses.Existing},
        {409: responses.Blocked},
        body=JobSent,
        links=True,
    ),
    Call(
        "GET",
        "/v1/jobs",
        find_jobs,
        "List jobs, the newest first",
        Permission.VIEW,
        {200: responses.Jobs},
        query=JobsAsked,
    ),
    Call(
        "GET",
        "/v1/jobs/{job_id}",
        show_job,
        "One job with all that is known about it",
        Permission.VIEW,
        {200: responses.FullJob, 304: None},
    ),
    Call(
        "GET",
        "/v1/jobs/{job_id}/why",
        tell_why,
        "Why a job is not running, where it runs, or how it ended",
        Permission.VIEW,
        {200: responses.Why},
    ),
)
