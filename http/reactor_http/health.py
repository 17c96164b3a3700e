"""Tells orchestrators whether this process lives, and whether it can do its work."""

from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor.database import connect
from reactor.errors import ReactorError
from reactor.revision import check_revision
from reactor_http.edge import edge_of


async def live(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> JSONResponse:
    """Takes a new connection each time, since that is what would fail; short, since probes give up soon."""
    try:
        async with connect(edge_of(request).url, name="reactor health", timeout_seconds=2) as connection:
            revision = await check_revision(connection)
    except ReactorError as error:
        return JSONResponse({"status": "unavailable", "database": error.message}, status_code=503)
    return JSONResponse({"status": "ok", "database": "ok", "schema": revision})
