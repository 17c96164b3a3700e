"""Tells orchestrators whether this process lives, and whether it can do its work."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor.database.connection import connect
from reactor.database.failures import DRIVER_ERRORS, is_transient, summary
from reactor.database.revision import check_revision
from reactor.errors import ReactorError
from reactor.log import get_logger
from reactor_http.cache import Recent
from reactor_http.state import Edge, edge_of

log = get_logger(__name__)

_KEPT_SECONDS = 0.5
# Probes give up soon.
_DATABASE_SECONDS = 2.0


async def live(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


class Ready:
    """Anybody may ask, as often as they like: the database is asked twice a second at most, and its address stays in
    the log."""

    def __init__(self) -> None:
        self._recent: Recent[dict[str, str]] = Recent(_KEPT_SECONDS)
        self._was_well = True

    async def answer(self, request: Request) -> JSONResponse:
        edge = edge_of(request)
        parts = await self._recent.get(lambda: _database(edge))
        is_well = parts["database"] == "ok"
        for name, check in edge.checks.items():
            found = check()
            parts = parts | {name: "ok" if found else "not well"}
            is_well = is_well and found
        if is_well is not self._was_well:
            self._was_well = is_well
            (log.info if is_well else log.warning)("ready" if is_well else "not ready", **parts)
        return JSONResponse({"status": "ok" if is_well else "unavailable", **parts}, 200 if is_well else 503)


async def _database(edge: Edge) -> dict[str, str]:
    """By a new connection, since that is what would fail."""
    try:
        # Also of the question: whoever waits for a lock, as during a migration, is not well.
        async with (
            connect(edge.url, name="reactor health", timeout_seconds=_DATABASE_SECONDS, prepares=False) as connection,
            asyncio.timeout(_DATABASE_SECONDS),
        ):
            return {"database": "ok", "schema": await check_revision(connection)}
    except (ReactorError, *DRIVER_ERRORS) as error:
        if is_transient(error):
            log.warning("health check: no database", error=summary(error))
            return {"database": "unreachable"}
        if isinstance(error, ReactorError):
            return {"database": error.message}
        raise
