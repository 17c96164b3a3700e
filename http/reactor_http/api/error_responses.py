"""Limits the time of requests, and turns errors into problem responses that say what to do."""

import asyncio
from urllib.parse import quote

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
    JobTypeUnknown,
    JobUnknown,
    LimitInvalid,
    LimitUnknown,
    LockedElsewhere,
    NotRecoverable,
    PayloadRefused,
    PipelineUnknown,
    ReactorError,
    ScopeTaken,
)
from reactor.log import get_logger
from reactor_http.api.access import RequestHandler
from reactor_http.middleware.security_headers import security_headers
from reactor_http.problem import Problem
from reactor_http.state import state_of

log = get_logger(__name__)

_SOON = {"Retry-After": "1"}
_LATER = {"Retry-After": "5"}
_WHEN_DRAINED = {"Retry-After": "30"}


def limit_time(handler: RequestHandler) -> RequestHandler:
    """Ends requests that take too long. The driver then cancels the statement on the server, too."""

    async def limited(request: Request) -> Response:
        seconds = state_of(request).timings.request_seconds
        try:
            async with asyncio.timeout(seconds):
                return await handler(request)
        except TimeoutError:
            detail = f"Timed out after {seconds:g} s."
            raise Problem(503, detail, "Request less at once, or try again later.", headers=_LATER) from None
        except ClientDisconnect:
            return Response(status_code=400)

    return limited


async def respond_to_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


async def respond_to_http_error(request: Request, error: Exception) -> Response:
    """For errors that Starlette raises: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:200]
    match error.status_code:
        case 404:
            detail, remedy = f"There is nothing at {path}.", "/openapi.json lists all endpoints."
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            detail, remedy = f"{path} does not support {request.method}.", f"Use {allowed}." if allowed else ""
        case _:
            detail, remedy = str(error.detail), ""
    return Problem(error.status_code, detail, remedy, headers=error.headers).response()


async def respond_to_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ReactorError)
    return problem_of(error).response()


async def respond_to_unexpected_error(request: Request, error: Exception) -> Response:
    """For bugs: the server logs the error, and the response does not reveal it.

    Starlette sends this response outside of all middleware, so it needs its own security headers.
    """
    return Problem(
        500,
        "Internal error in the server.",
        "Please report it with the details from the server's log.",
        headers=security_headers(request.scope),
    ).response()


def problem_of(error: ReactorError) -> Problem:
    match error:
        case JobUnknown():
            return Problem(404, error.message, "GET /v1/jobs lists recent jobs; old ones may have been pruned.")
        case PipelineUnknown():
            return Problem(
                404, error.message, "GET /v1/pipelines lists recent pipelines; old ones may have been pruned."
            )
        case LimitUnknown():
            return Problem(404, error.message, "GET /v1/limits lists them.")
        case JobTypeUnknown():
            return Problem(404, error.message, "GET /v1/job-types lists those that are known.")
        case PayloadRefused():
            return _payload_refused(error)
        case JobInvalid() | LimitInvalid():
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
            return _database_unreachable()
        case DatabaseRefused():
            return _database_refused(error)
        case _:
            return Problem(503, error.message, error.remedy, headers=_LATER)


def _payload_refused(error: PayloadRefused) -> Problem:
    errors = [{"field": field, "message": message} for field, message in error.errors]
    detail = "{field} {message}.".format(**errors[0]) if len(errors) == 1 else f"{len(errors)} fields are invalid."
    path = f"/v1/job-types/{quote(error.job_type, safe='')}"
    return Problem(422, detail, f"GET {path} shows the schema of the payload.", errors=errors)


def _database_unreachable() -> Problem:
    """Does not reveal the database's address."""
    return Problem(
        503,
        "The database is unreachable.",
        "Try again in a moment; /health/ready reports when it is back.",
        headers=_LATER,
    )


def _database_refused(error: DatabaseRefused) -> Problem:
    match error.__cause__:
        case asyncpg.InsufficientPrivilegeError():
            log.warning("database user lacks a privilege", error=error.message)
            return Problem(403, "The server's database user is not allowed to do this.", error.remedy)
        case asyncpg.UniqueViolationError() | asyncpg.ObjectNotInPrerequisiteStateError():
            return Problem(409, error.message, error.remedy)
        case asyncpg.IntegrityConstraintViolationError() | asyncpg.DataError() | asyncpg.ProgramLimitExceededError():
            return Problem(422, error.message, error.remedy)
        case asyncpg.CharacterNotInRepertoireError() | asyncpg.UntranslatableCharacterError():
            return Problem(422, error.message, error.remedy)
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.InvalidSchemaNameError():
            log.error("database schema is missing or outdated", error=error.message)
            return Problem(503, "The database has no reactor schema, or an outdated one.", "Run `reactor migrate`.")
        case _:
            log.error("database error", error=error.message)
            return Problem(503, "The database could not execute this.", "Try again in a moment.", headers=_LATER)
