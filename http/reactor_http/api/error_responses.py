"""Keeps requests within their time, and turns whatever goes wrong into a problem that says what to do."""

import asyncio

import asyncpg
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from reactor.errors import (
    ConnectionLost,
    DatabaseBusy,
    DatabaseRefused,
    DatabaseUnreachable,
    Draining,
    JobInvalid,
    JobUnknown,
    LockedElsewhere,
    NotRecoverable,
    PipelineUnknown,
    ReactorError,
    ScopeTaken,
)
from reactor.log import get_logger
from reactor_http.api.access import Endpoint
from reactor_http.middleware.security_headers import safe_headers
from reactor_http.problem import Problem
from reactor_http.state import edge_of

log = get_logger(__name__)

_SOON = {"Retry-After": "1"}
_LATER = {"Retry-After": "5"}
_WHEN_DRAINED = {"Retry-After": "30"}


def in_time(endpoint: Endpoint) -> Endpoint:
    """Ends what takes too long. The driver then has the server cancel the statement too."""

    async def limited(request: Request) -> Response:
        seconds = edge_of(request).request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await endpoint(request)
        except TimeoutError:
            detail = f"This took longer than {seconds:g} s, and was given up."
            raise Problem(503, detail, "Ask for less, or try again later.", headers=_LATER) from None
        except ClientDisconnect:
            return Response(status_code=400)

    return limited


async def refuse(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


async def refuse_request(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:200]
    match error.status_code:
        case 404:
            detail, remedy = f"There is nothing at {path}.", "/openapi.json lists what there is."
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            detail, remedy = f"{path} can't be used with {request.method}.", f"Use {allowed}." if allowed else ""
        case _:
            detail, remedy = str(error.detail), ""
    return Problem(error.status_code, detail, remedy, headers=error.headers).response()


async def refuse_work(request: Request, error: Exception) -> Response:
    """What the engine refuses."""
    assert isinstance(error, ReactorError)
    return explained(error).response()


async def own_up(request: Request, error: Exception) -> Response:
    """A bug of ours. The server logs it; the caller need not know its insides.

    Starlette answers this outside of all middleware, so it has to bring the headers itself.
    """
    return Problem(
        500,
        "Something went wrong in the server.",
        "Its log has the details: please report them.",
        headers=safe_headers(request.scope),
    ).response()


def explained(error: ReactorError) -> Problem:
    match error:
        case JobUnknown():
            return Problem(404, error.message, "GET /v1/jobs lists the newest; old ones may have been pruned.")
        case PipelineUnknown():
            return Problem(404, error.message, "GET /v1/pipelines lists the newest; old ones may have been pruned.")
        case JobInvalid():
            return Problem(422, error.message, error.remedy)
        case NotRecoverable():
            return Problem(409, error.message, error.remedy, state=error.state)
        case ScopeTaken():
            return Problem(409, error.message, error.remedy, holder_id=error.holder_id)
        case Draining():
            return Problem(503, error.message, "Try again later.", headers=_WHEN_DRAINED)
        case LockedElsewhere() | DatabaseBusy():
            return Problem(503, error.message, error.remedy, headers=_SOON)
        case ConnectionLost():
            return Problem(503, "The connection to the database was lost.", error.remedy, headers=_LATER)
        case DatabaseUnreachable():
            return away()
        case DatabaseRefused():
            return _refused(error)
        case _:
            return Problem(503, error.message, error.remedy, headers=_LATER)


def away(why: str = "") -> Problem:
    """Where the database is, is nobody's business."""
    return Problem(
        503,
        f"The database can't be reached{why and ': '}{why}.",
        "Try again in a moment: /health/ready tells when it is back.",
        headers=_LATER,
    )


def _refused(error: DatabaseRefused) -> Problem:
    match error.__cause__:
        case asyncpg.InsufficientPrivilegeError():
            log.warning("database user may not do this", error=error.message)
            return Problem(403, "The server's database user may not do this.", error.remedy)
        case asyncpg.UniqueViolationError() | asyncpg.ObjectNotInPrerequisiteStateError():
            return Problem(409, error.message, error.remedy)
        case asyncpg.IntegrityConstraintViolationError() | asyncpg.DataError() | asyncpg.ProgramLimitExceededError():
            return Problem(422, error.message, error.remedy)
        case asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return Problem(422, error.message, error.remedy)
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.InvalidSchemaNameError():
            log.error("database schema is not ours", error=error.message)
            return Problem(503, "The database has no reactor schema, or an old one.", "Run `reactor migrate`.")
        case _:
            log.error("database refused", error=error.message)
            return Problem(503, "The database could not do this now.", "Try again in a moment.", headers=_LATER)
