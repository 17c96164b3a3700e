"""The endpoints for statistics: counts and durations of jobs, for dashboards."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from reactor.database.connection import Connection
from reactor.job import JobState
from reactor.queries.stats import DAYS, MINUTES, history, stats
from reactor_http.api.access import Permission
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.read_request import read_query
from reactor_http.api.render_response import json_response
from reactor_http.api.requests import Query
from reactor_http.api.responses import ResponseBody
from reactor_http.state import state_of


class StatsQuery(Query):
    days: int = Field(7, ge=DAYS[0], le=DAYS[1])


class HistoryQuery(Query):
    minutes: int = Field(60, ge=MINUTES[0], le=MINUTES[1])


class TypeStats(ResponseBody):
    job_type: str
    state: JobState
    count: int
    average_seconds: float | None
    """From the first start to the end; null: no such job has started and ended."""
    p50_seconds: float | None
    p95_seconds: float | None
    retried: int
    """Jobs with an attempt that failed, crashed or lost its lease, and jobs that were retried manually."""


class Stats(ResponseBody):
    days: int
    types: list[TypeStats]
    """Jobs that ended in this period, and all unfinished jobs."""


class Bucket(ResponseBody):
    at: datetime
    finished: int
    """Ended in any state."""
    failed: int
    created: int


class Duration(ResponseBody):
    job_type: str
    at: datetime
    p50_seconds: float
    p95_seconds: float
    count: int


class History(ResponseBody):
    minutes: int
    bucket_seconds: int
    buckets: list[Bucket]
    """In order, including empty ones."""
    durations: list[Duration]
    """Of the 20 busiest job types; buckets in which none of their jobs ended are left out."""


async def show_stats(request: Request) -> Response:
    days = read_query(request, StatsQuery).days

    async def count(connection: Connection) -> dict[str, Any]:
        return {"days": days, "types": await stats(connection, days)}

    return await _cached(request, f"stats {days}", count)


async def show_history(request: Request) -> Response:
    minutes = read_query(request, HistoryQuery).minutes
    return await _cached(request, f"history {minutes}", lambda connection: history(connection, minutes))


async def _cached(request: Request, key: str, count: Callable[[Connection], Awaitable[dict[str, Any]]]) -> Response:
    """Caches the result: counting reads every job that ended in the requested period."""
    state = state_of(request)

    async def compute() -> dict[str, Any]:
        async with state.connection() as connection:
            return await count(connection)

    return json_response(await state.cached(key, state.timings.stats_cache_seconds).get(compute))


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/stats",
        show_stats,
        "Count jobs and their durations by type and state",
        Permission.VIEW,
        {200: Stats},
        query=StatsQuery,
    ),
    Endpoint(
        "GET",
        "/v1/stats/history",
        show_history,
        "Count recently created and ended jobs in about sixty buckets",
        Permission.VIEW,
        {200: History},
        query=HistoryQuery,
    ),
)
