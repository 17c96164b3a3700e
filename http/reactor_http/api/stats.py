"""How jobs have fared, for dashboards."""

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
from reactor_http.api.endpoint import Call
from reactor_http.api.read_request import read_query
from reactor_http.api.render_response import answer
from reactor_http.api.requests import Asked
from reactor_http.api.responses import Answer
from reactor_http.state import edge_of

_KEPT_SECONDS = 2.0


class StatsAsked(Asked):
    days: int = Field(7, ge=DAYS[0], le=DAYS[1])


class HistoryAsked(Asked):
    minutes: int = Field(60, ge=MINUTES[0], le=MINUTES[1])


class TypeStats(Answer):
    job_type: str
    state: JobState
    count: int
    average_seconds: float | None
    """From the first start to the end; null: none has started and ended."""
    p50_seconds: float | None
    p95_seconds: float | None
    retried: int
    """Those with an attempt that failed, died or lost its lease, or that were started anew by hand."""


class Stats(Answer):
    days: int
    types: list[TypeStats]
    """Jobs that ended in these days, and all that have not ended."""


class Bucket(Answer):
    at: datetime
    finished: int
    """All that ended."""
    failed: int
    created: int


class Duration(Answer):
    job_type: str
    at: datetime
    p50_seconds: float
    p95_seconds: float
    count: int


class History(Answer):
    minutes: int
    bucket_seconds: int
    buckets: list[Bucket]
    """In their order, the empty ones too."""
    durations: list[Duration]
    """Of the 20 busiest types, where any of theirs ended."""


async def show_stats(request: Request) -> Response:
    days = read_query(request, StatsAsked).days

    async def count(connection: Connection) -> dict[str, Any]:
        return {"days": days, "types": await stats(connection, days)}

    return await _kept(request, f"stats {days}", count)


async def show_history(request: Request) -> Response:
    minutes = read_query(request, HistoryAsked).minutes
    return await _kept(request, f"history {minutes}", lambda connection: history(connection, minutes))


async def _kept(request: Request, key: str, count: Callable[[Connection], Awaitable[dict[str, Any]]]) -> Response:
    """Counting reads all that ended in the time asked for: whoever asks shares the answer with who asked just now."""
    edge = edge_of(request)

    async def find() -> dict[str, Any]:
        async with edge.connection() as connection:
            return await count(connection)

    return answer(await edge.recent(key, _KEPT_SECONDS).get(find))


CALLS = (
    Call(
        "GET",
        "/v1/stats",
        show_stats,
        "How jobs have fared, by type and state",
        Permission.VIEW,
        {200: Stats},
        query=StatsAsked,
    ),
    Call(
        "GET",
        "/v1/stats/history",
        show_history,
        "What was created and ended lately, in about sixty buckets",
        Permission.VIEW,
        {200: History},
        query=HistoryAsked,
    ),
)
