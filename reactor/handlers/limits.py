"""Limits that code declares for the jobs of a handler, and their synchronization with the table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode
from reactor.errors import LimitInvalid
from reactor.log import get_logger

log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How many jobs of a type may run or start, over all pods. docs/limits.md describes the fields."""

    max_running: int | None = None
    """Jobs at the same time."""
    rate: int | None = None
    """Jobs that start in a period."""
    period: timedelta | float = 1.0
    """A timedelta, or seconds."""
    burst: int | None = None
    """Jobs that may start at once after a pause. None: a tenth of a second's worth, at least 2, at most `rate`."""
    per: Literal["type", "lane"] = "type"
    """For all jobs of the type together, or for those of each lane."""
    queue: str | None = None
    """Only for jobs in this queue."""

    def __post_init__(self) -> None:
        """Validates at the declaration rather than when a worker starts."""
        if self.max_running is None and self.rate is None:
            raise LimitInvalid("it limits nothing", "Set max_running or rate.")
        for name in ("max_running", "rate", "burst"):
            value, least = getattr(self, name), int(name != "max_running")
            if value is not None and (not isinstance(value, int) or not least <= value < 2**31):
                raise LimitInvalid(f"{name} is {value!r}", f"Use a whole number from {least}.")
        if not 0.001 <= self.period_seconds <= 366 * 86400:
            raise LimitInvalid(f"the period is {self.period!r}", "Use a millisecond to 366 days.")
        if self.per not in ("type", "lane"):
            raise LimitInvalid(f"per is {self.per!r}", "Use type or lane.")

    @property
    def period_seconds(self) -> float:
        return self.period.total_seconds() if isinstance(self.period, timedelta) else float(self.period)

    def as_row(self, job_type: str) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "job_type": job_type,
            "lane": "*" if self.per == "lane" else "",
            "max_running": self.max_running,
            "rate": self.rate,
            "period_seconds": self.period_seconds,
            "burst": self.burst,
        }


async def declare_limits(connection: Connection, limits: Mapping[str, Iterable[Limit]]) -> None:
    """Writes the limits of these job types, except where an operator has set other values."""
    rows = [limit.as_row(job_type) for job_type, each in limits.items() for limit in each]
    if rows:
        for record in await connection.fetch(statements.DECLARE_LIMITS, encode(rows)):
            log.info("limit kept as an operator has set it", **record)
