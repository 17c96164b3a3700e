"""How jobs have fared, for dashboards: GET /v1/stats and /v1/stats/history."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor.database import Connection
from reactor.errors import ReactorError, TooMuchToCount
from reactor.line import CONNECTION_LOST, SERVER_STOPS
from reactor.stats import DAYS, MINUTES, history, stats
from reactor_http.edge import edge_of
from reactor_http.problem import Problem
from reactor_http.recent import Recent

_KEPT_SECONDS = 2.0
_DEFAULT_DAYS = 7
_DEFAULT_MINUTES = 60


class Stats:
    """Counting reads all that ended in the time asked for: whoever asks shares the answer with who asked just now."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, int], Recent[dict[str, Any]]] = {}

    async def totals(self, request: Request) -> JSONResponse:
        days = _number(request, "days", _DEFAULT_DAYS, DAYS)

        async def find(connection: Connection) -> dict[str, Any]:
            return {"days": days, "types": await stats(connection, days)}

        return await self._answer(request, ("days", days), find)

    async def over_time(self, request: Request) -> JSONResponse:
        minutes = _number(request, "minutes", _DEFAULT_MINUTES, MINUTES)

        async def find(connection: Connection) -> dict[str, Any]:
            found = await history(connection, minutes)
            for part in found["buckets"] + found["durations"]:
                part["at"] = part["at"].isoformat()
            return found

        return await self._answer(request, ("minutes", minutes), find)

    async def _answer(
        self,
        request: Request,
        key: tuple[str, int],
        find: Callable[[Connection], Awaitable[dict[str, Any]]],
    ) -> JSONResponse:
        async def ask() -> dict[str, Any]:
            async with edge_of(request).connection() as connection:
                return await find(connection)

        recent = self._recent.setdefault(key, Recent(_KEPT_SECONDS))
        try:
            return JSONResponse(await recent.get(ask))
        except TooMuchToCount as error:
            raise Problem(503, error.message, error.remedy, headers={"Retry-After": "60"}) from error
        except (ReactorError, asyncpg.PostgresError, *CONNECTION_LOST, *SERVER_STOPS) as error:
            raise Problem(503, "The database can't be reached.", "Try again.", headers={"Retry-After": "5"}) from error


def _number(request: Request, name: str, default: int, bounds: tuple[int, int]) -> int:
    given = request.query_params.get(name, "")
    low, high = bounds
    if not given:
        return default
    if not given.isascii() or not given.isdigit() or len(given) > 9 or not low <= int(given) <= high:
        message = f"must be a whole number from {low} to {high}"
        raise Problem(422, f"{name} {message}, not {given[:50]!r}.", errors=[{"field": name, "message": message}])
    return int(given)
