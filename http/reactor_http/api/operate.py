"""The calls for whoever looks after a running system: cancel, retry, recover; queues, draining, workers, schedules."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from reactor.job import JobState
from reactor.operate import actions
from reactor.operate.schedules import list_schedules
from reactor.queries.pipelines import find_pipeline
from reactor.queries.queues import find_restrictions, list_queues
from reactor.queries.workers import list_workers
from reactor_http.api import responses
from reactor_http.api.access import Permission, operator
from reactor_http.api.endpoint import Call
from reactor_http.api.read_request import job_id, pipeline_id, queue_name, read_body
from reactor_http.api.render_response import answer
from reactor_http.api.requests import DrainSent, Nothing, Reason
from reactor_http.problem import Problem
from reactor_http.state import edge_of

_UNSAID = "Cancelled by an operator."


async def cancel_job(request: Request) -> Response:
    identity, why = job_id(request), await read_body(request, Reason, required=False)
    async with edge_of(request).connection() as connection:
        done = await actions.cancel(connection, [identity], why.reason or _UNSAID, operator(request))
    return answer(_cancelled(_fit(done, "cancelled")))


async def retry_job(request: Request) -> Response:
    identity, _ = job_id(request), await read_body(request, Nothing, required=False)
    async with edge_of(request).connection() as connection:
        done = await actions.retry(connection, [identity], operator(request))
    return answer({"jobs": _fit(done, "retried").jobs})


async def recover_job(request: Request) -> Response:
    identity, _ = job_id(request), await read_body(request, Nothing, required=False)
    async with edge_of(request).connection() as connection:
        await actions.recover(connection, identity, operator(request))
    return answer({"jobs": {identity: JobState.PENDING}})


async def cancel_pipeline(request: Request) -> Response:
    identity, why = pipeline_id(request), await read_body(request, Reason, required=False)
    async with edge_of(request).connection() as connection:
        done = await actions.cancel_pipeline(connection, identity, why.reason or _UNSAID, operator(request))
        state = None if done.jobs else (await find_pipeline(connection, identity))["state"]
    if state:
        raise _in_vain(f"The pipeline is {state}: there is nothing left to cancel.", state)
    return answer(_cancelled(done))


async def retry_pipeline(request: Request) -> Response:
    identity, _ = pipeline_id(request), await read_body(request, Nothing, required=False)
    async with edge_of(request).connection() as connection:
        done = await actions.retry_pipeline(connection, identity, operator(request))
        state = None if done.jobs else (await find_pipeline(connection, identity))["state"]
    if state:
        raise _in_vain(f"The pipeline is {state}, and none of its jobs failed or was cancelled.", state)
    return answer({"jobs": done.jobs})


async def show_workers(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        return answer({"workers": await list_workers(connection)})


async def show_queues(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        return answer(await list_queues(connection))


async def pause_queue(request: Request) -> Response:
    queue, _ = queue_name(request), await read_body(request, Nothing, required=False)
    async with edge_of(request).connection() as connection:
        was = await actions.pause(connection, queue, operator(request))
    return answer({"queue": queue, "paused": True, "was_paused": was})


async def resume_queue(request: Request) -> Response:
    queue, _ = queue_name(request), await read_body(request, Nothing, required=False)
    async with edge_of(request).connection() as connection:
        was = await actions.resume(connection, queue, operator(request))
    return answer({"queue": queue, "paused": False, "was_paused": was})


async def show_drain(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        return answer({"draining": (await find_restrictions(connection)).draining})


async def drain(request: Request) -> Response:
    sent = await read_body(request, DrainSent)
    async with edge_of(request).connection() as connection:
        was = await actions.drain(connection, sent.on, operator(request))
    return answer({"draining": sent.on, "was_draining": was})


async def show_schedules(request: Request) -> Response:
    async with edge_of(request).connection() as connection:
        return answer({"schedules": await list_schedules(connection)})


def _fit(done: actions.Changed, verb: str) -> actions.Changed:
    """For a single job."""
    for identity, state in done.unfit.items():
        raise _in_vain(f"Job {identity} is {state}: it can't be {verb}.", state)
    for identity in done.unknown:
        raise Problem(
            404, f"There is no job {identity}.", "GET /v1/jobs lists the newest; old ones may have been pruned."
        )
    return done


def _cancelled(done: actions.Changed) -> dict[str, Any]:
    return {"jobs": dict.fromkeys(done.jobs, JobState.CANCELLED), "was": done.jobs}


def _in_vain(detail: str, state: str) -> Problem:
    return Problem(409, detail, "Nothing was changed.", state=state)


def _change(path: str, endpoint: Any, summary: str, answered: Any, **more: Any) -> Call:
    taken: dict[str, Any] = {"body": Nothing, "body_is_required": False} | more
    return Call("POST", path, endpoint, summary, Permission.OPERATE, {200: answered}, **taken)


def _look(path: str, endpoint: Any, summary: str, answered: Any) -> Call:
    return Call("GET", path, endpoint, summary, Permission.VIEW, {200: answered})


_WRONG = {409: responses.WrongState}

CALLS = (
    _change("/v1/jobs/{job_id}/cancel", cancel_job, "Cancel a job", responses.Cancelled, refuses=_WRONG, body=Reason),
    _change("/v1/jobs/{job_id}/retry", retry_job, "Start a finished job anew", responses.Changed, conflicts=True),
    _change(
        "/v1/jobs/{job_id}/recover",
        recover_job,
        "Take a running job from a worker that is dead",
        responses.Changed,
        refuses=_WRONG,
    ),
    _change(
        "/v1/pipelines/{pipeline_id}/cancel",
        cancel_pipeline,
        "Cancel what has not finished of a pipeline",
        responses.Cancelled,
        refuses=_WRONG,
        body=Reason,
    ),
    _change(
        "/v1/pipelines/{pipeline_id}/retry",
        retry_pipeline,
        "Start anew what failed, was cancelled or was done in part",
        responses.Changed,
        conflicts=True,
    ),
    _look(
        "/v1/workers", show_workers, "Worker processes: the live ones, and those that died lately", responses.Workers
    ),
    _look("/v1/queues", show_queues, "Queues, and what is in them", responses.Queues),
    _change("/v1/queues/{queue:path}/pause", pause_queue, "Take nothing more from a queue", responses.Paused),
    _change("/v1/queues/{queue:path}/resume", resume_queue, "Take jobs from a queue again", responses.Paused),
    _look("/v1/drain", show_drain, "Whether pods take jobs", responses.Draining),
    _change(
        "/v1/drain",
        drain,
        "Have pods take no more jobs, or take them again",
        responses.Drained,
        body=DrainSent,
        body_is_required=True,
    ),
    _look("/v1/schedules", show_schedules, "Recurring jobs", responses.Schedules),
)
