"""Health checks for orchestrators: /health/live and /health/ready."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor.database.connection import connect
from reactor.database.failures import DRIVER_ERRORS, is_transient, summary
from reactor.database.revision import check_encoding, check_revision, check_writable
from reactor.errors import ReactorError
from reactor.log import get_logger
from reactor_http.cache import CachedValue
from reactor_http.state import AppState

log = get_logger(__name__)


async def live(request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


class Readiness:
    """Open to every caller: the result is cached, and the database's address appears in the log only."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._database: CachedValue[dict[str, str]] = CachedValue(state.timings.health_cache_seconds)
        self._was_ready = True

    async def respond(self, request: Request) -> JSONResponse:
        parts = await self._database.get(self._check_database)
        is_ready = parts["database"] == "ok"
        for name, check in self._state.checks.items():
            passed = check()
            parts = parts | {name: "ok" if passed else "not well"}
            is_ready = is_ready and passed
        if is_ready is not self._was_ready:
            self._was_ready = is_ready
            (log.info if is_ready else log.warning)("ready" if is_ready else "not ready", **parts)
        return JSONResponse({"status": "ok" if is_ready else "unavailable", **parts}, 200 if is_ready else 503)

    async def _check_database(self) -> dict[str, str]:
        """Over a new connection, because new connections are what fails first."""
        seconds = self._state.timings.health_seconds
        try:
            # The timeout covers the query, too: a database that waits for a lock, as in a migration, is not ready.
            async with (
                connect(self._state.url, name="reactor health", timeout_seconds=seconds, prepares=False) as connection,
                asyncio.timeout(seconds),
            ):
                await check_writable(connection)
                await check_encoding(connection)
                return {"database": "ok", "schema": await check_revision(connection)}
        except (ReactorError, *DRIVER_ERRORS) as error:
            if is_transient(error):
                log.warning("health check failed: database unreachable", error=summary(error))
                return {"database": "unreachable"}
            if isinstance(error, ReactorError):
                return {"database": error.message}
            raise
