"""The endpoints for operators: cancel, retry, recover; queues, limits, draining, workers, schedules."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reactor.errors import JobUnknown
from reactor.job import JobState
from reactor.operate import actions, limits
from reactor.operate.limits import LimitKey, LimitValues
from reactor.operate.schedules import list_schedules
from reactor.queries.job_types import find_job_type, list_job_types
from reactor.queries.pipelines import find_pipeline
from reactor.queries.queues import find_restrictions, list_queues
from reactor.queries.workers import list_workers
from reactor_http.api import responses
from reactor_http.api.access import Permission, RequestHandler, operator
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.read_request import invalid, job_id, job_type_name, pipeline_id, queue_name, read_body
from reactor_http.api.render_response import json_response
from reactor_http.api.requests import CancelRequest, DrainRequest, EmptyBody, LimitName, LimitRequest
from reactor_http.problem import Problem
from reactor_http.state import state_of

_DEFAULT_REASON = "Cancelled by an operator."


async def cancel_job(request: Request) -> Response:
    identity, body = job_id(request), await read_body(request, CancelRequest, required=False)
    async with state_of(request).connection() as connection:
        done = await actions.cancel(connection, [identity], body.reason or _DEFAULT_REASON, operator(request))
    return json_response(_cancelled(_require_changed(done, "cancelled")))


async def retry_job(request: Request) -> Response:
    identity, _ = job_id(request), await read_body(request, EmptyBody, required=False)
    async with state_of(request).connection() as connection:
        done = await actions.retry(connection, [identity], operator(request))
    return json_response({"jobs": _require_changed(done, "retried").jobs})


async def recover_job(request: Request) -> Response:
    identity, _ = job_id(request), await read_body(request, EmptyBody, required=False)
    async with state_of(request).connection() as connection:
        await actions.recover(connection, identity, operator(request))
    return json_response({"jobs": {identity: JobState.PENDING}})


async def cancel_pipeline(request: Request) -> Response:
    identity, body = pipeline_id(request), await read_body(request, CancelRequest, required=False)
    async with state_of(request).connection() as connection:
        done = await actions.cancel_pipeline(connection, identity, body.reason or _DEFAULT_REASON, operator(request))
        state = None if done.jobs else (await find_pipeline(connection, identity))["state"]
    if state:
        raise _conflict(f"The pipeline is {state}: nothing is left to cancel.", state)
    return json_response(_cancelled(done))


async def retry_pipeline(request: Request) -> Response:
    identity, _ = pipeline_id(request), await read_body(request, EmptyBody, required=False)
    async with state_of(request).connection() as connection:
        done = await actions.retry_pipeline(connection, identity, operator(request))
        state = None if done.jobs else (await find_pipeline(connection, identity))["state"]
    if state:
        raise _conflict(f"The pipeline is {state}: none of its jobs failed, was cancelled or ended partial.", state)
    return json_response({"jobs": done.jobs})


async def show_workers(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response({"workers": await list_workers(connection)})


async def show_job_types(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response({"job_types": await list_job_types(connection)})


async def show_job_type(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response(await find_job_type(connection, job_type_name(request)))


async def show_queues(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response(await list_queues(connection))


async def pause_queue(request: Request) -> Response:
    queue, _ = queue_name(request), await read_body(request, EmptyBody, required=False)
    async with state_of(request).connection() as connection:
        was = await actions.pause(connection, queue, operator(request))
    return json_response({"queue": queue, "paused": True, "was_paused": was})


async def resume_queue(request: Request) -> Response:
    queue, _ = queue_name(request), await read_body(request, EmptyBody, required=False)
    async with state_of(request).connection() as connection:
        was = await actions.resume(connection, queue, operator(request))
    return json_response({"queue": queue, "paused": False, "was_paused": was})


async def show_drain(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response({"draining": (await find_restrictions(connection)).draining})


async def switch_drain(request: Request) -> Response:
    body = await read_body(request, DrainRequest)
    async with state_of(request).connection() as connection:
        was = await actions.drain(connection, body.on, operator(request))
    return json_response({"draining": body.on, "was_draining": was})


async def show_limits(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        found = await limits.list_limits(connection)
    for limit in found:
        limit |= {name: limit[name] or None for name in ("queue", "job_type", "lane")}
    return json_response({"limits": found})


async def set_limit(request: Request) -> Response:
    body = await read_body(request, LimitRequest)
    values = LimitValues(body.max_running, body.rate, body.period_seconds, body.burst)
    async with state_of(request).connection() as connection:
        was = await limits.set_limit(connection, _limit_key(body), values, operator(request))
    return json_response(body.model_dump() | {"was_set": was is not None})


async def remove_limit(request: Request) -> Response:
    body = await read_body(request, LimitName)
    async with state_of(request).connection() as connection:
        is_declared = await limits.remove_limit(connection, _limit_key(body), operator(request))
    return json_response(body.model_dump() | {"is_declared": is_declared})


def _limit_key(body: LimitName) -> LimitKey:
    if body.queue is None and body.job_type is None:
        raise invalid({"queue": "or job_type must be given"})
    return LimitKey(body.queue or "", body.job_type or "", body.lane or "")


async def show_schedules(request: Request) -> Response:
    async with state_of(request).connection() as connection:
        return json_response({"schedules": await list_schedules(connection)})


def _require_changed(done: actions.Changed, verb: str) -> actions.Changed:
    """For an action on one job: raises if the job is unknown or in the wrong state."""
    for identity, state in done.unfit.items():
        raise _conflict(f"Job {identity} is {state}: it can't be {verb}.", state)
    for identity in done.unknown:
        raise JobUnknown(identity)
    return done


def _cancelled(done: actions.Changed) -> dict[str, Any]:
    return {"jobs": dict.fromkeys(done.jobs, JobState.CANCELLED), "was": done.jobs}


def _conflict(detail: str, state: str) -> Problem:
    return Problem(409, detail, "Nothing was changed.", state=state)


def _action(path: str, handler: RequestHandler, summary: str, response: Any, **more: Any) -> Endpoint:
    options: dict[str, Any] = {"body": EmptyBody, "body_is_required": False} | more
    return Endpoint("POST", path, handler, summary, Permission.OPERATE, {200: response}, **options)


def _view(path: str, handler: RequestHandler, summary: str, response: Any) -> Endpoint:
    return Endpoint("GET", path, handler, summary, Permission.VIEW, {200: response})


_STATE_CONFLICT = {409: responses.StateConflict}

ENDPOINTS = (
    _action(
        "/v1/jobs/{job_id}/cancel",
        cancel_job,
        "Cancel a job",
        responses.CancelledJobs,
        errors=_STATE_CONFLICT,
        body=CancelRequest,
    ),
    _action("/v1/jobs/{job_id}/retry", retry_job, "Retry a finished job", responses.ChangedJobs, may_conflict=True),
    _action(
        "/v1/jobs/{job_id}/recover",
        recover_job,
        "Recover a running job whose worker is dead",
        responses.ChangedJobs,
        errors=_STATE_CONFLICT,
    ),
    _action(
        "/v1/pipelines/{pipeline_id}/cancel",
        cancel_pipeline,
        "Cancel the unfinished jobs of a pipeline",
        responses.CancelledJobs,
        errors=_STATE_CONFLICT,
        body=CancelRequest,
    ),
    _action(
        "/v1/pipelines/{pipeline_id}/retry",
        retry_pipeline,
        "Retry the failed, cancelled and partial jobs of a pipeline",
        responses.ChangedJobs,
        may_conflict=True,
    ),
    _view(
        "/v1/workers",
        show_workers,
        "List worker processes: live ones, and those that ended recently",
        responses.WorkerList,
    ),
    _view(
        "/v1/job-types",
        show_job_types,
        "List the job types that pods have handlers for, with the schemas of their payloads",
        responses.JobTypeList,
    ),
    _view("/v1/job-types/{job_type:path}", show_job_type, "Show a job type", responses.JobType),
    _view("/v1/queues", show_queues, "List queues with their job counts", responses.QueueList),
    _action(
        "/v1/queues/{queue:path}/pause",
        pause_queue,
        "Pause a queue: pods claim no more of its jobs",
        responses.ChangedQueue,
    ),
    _action("/v1/queues/{queue:path}/resume", resume_queue, "Resume a paused queue", responses.ChangedQueue),
    _view("/v1/drain", show_drain, "Show whether draining is on", responses.DrainState),
    _action(
        "/v1/drain",
        switch_drain,
        "Switch draining on (pods claim no more jobs) or off",
        responses.ChangedDraining,
        body=DrainRequest,
        body_is_required=True,
    ),
    _view("/v1/limits", show_limits, "List limits with the running jobs that they count", responses.LimitList),
    _action(
        "/v1/limits",
        set_limit,
        "Set a limit on running jobs, or on starts in a period, over all pods",
        responses.ChangedLimit,
        body=LimitRequest,
        body_is_required=True,
    ),
    _action(
        "/v1/limits/remove",
        remove_limit,
        "Remove a limit",
        responses.RemovedLimit,
        errors={404: responses.Problem},
        body=LimitName,
        body_is_required=True,
    ),
    _view("/v1/schedules", show_schedules, "List schedules", responses.ScheduleList),
)
