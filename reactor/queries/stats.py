"""Statistics of jobs: counts and durations by type and state, and over time."""

from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.queries.time_limit import time_limited

DAYS = (1, 90)
MINUTES = (5, 1440)

_BUCKETS = 60
# Widths that are easy to read on an axis.
_WIDTHS_SECONDS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_MAX_TYPES = 20


async def stats(connection: Connection, days: int, *, within_seconds: float = 5) -> list[dict[str, Any]]:
    """Per job type and state: jobs that finished in the last `days`, and all unfinished ones."""
    async with time_limited(connection, within_seconds):
        return [dict(record) for record in await connection.fetch(statements.STATS, days * 86400.0)]


async def history(connection: Connection, minutes: int, *, within_seconds: float = 5) -> dict[str, Any]:
    """Jobs created and finished in the last `minutes`, and their durations, in at most sixty buckets."""
    seconds, width = minutes * 60.0, bucket_seconds(minutes)
    async with time_limited(connection, within_seconds):
        buckets = await connection.fetch(statements.HISTORY, seconds, float(width))
        durations = await connection.fetch(statements.DURATION_HISTORY, seconds, float(width), _MAX_TYPES)
    return {
        "minutes": minutes,
        "bucket_seconds": width,
        "buckets": [dict(record) for record in buckets],
        "durations": [dict(record) for record in durations],
    }


def bucket_seconds(minutes: int) -> int:
    return next(width for width in _WIDTHS_SECONDS if minutes * 60 <= width * _BUCKETS)
