"""Responses while the database is down, locked or too slow."""

from asyncpg import PostgresError
from fastapi import Request
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError

# Connection lost, out of resources, locked, stopping or timed out.
CLASSES = ("08", "53", "55", "57")
KINDS = (DBAPIError, PostgresError, OSError)
"""A session raises the first, a new connection the others."""


async def respond(request: Request, error: Exception) -> JSONResponse:
    """J11: 503, and the client may repeat the request."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(cause, "sqlstate", None) or ""
    is_lost = isinstance(error, DBAPIError) and error.connection_invalidated
    if not (is_lost or isinstance(cause, OSError) or state.startswith(CLASSES)):
        raise error
    return JSONResponse({"detail": "The database is unavailable. Repeat the request."}, 503, {"Retry-After": "2"})
