"""A recurring job as code declares it, and how it gets into the table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode
from reactor.errors import ScheduleInvalid, TimingInvalid
from reactor.log import get_logger
from reactor.schedules.cron import read_timing

log = get_logger(__name__)

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """docs/schedules.md tells what each of these means."""

    name: str
    job_type: str
    payload: Mapping[str, Any] | None = None
    cron: str | None = None
    every: timedelta | float | None = None
    """Seconds, if it is a number."""
    timezone: str = "UTC"
    catch_up: bool = False
    queue: str = "default"
    priority: int = 0
    scope: str | None = None
    exclusive: bool = False
    tags: Sequence[str] = ()
    max_attempts: int | None = None
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refused where it is written, and not when it is due."""
        try:
            read_timing(self.cron, self._interval, self.timezone, _ANY_TIME)
            encode(dict(self.payload or {}))
        except TimingInvalid as error:
            raise ScheduleInvalid(self.name, error.message, error.remedy) from None
        except (ValueError, OverflowError) as error:
            raise ScheduleInvalid(self.name, str(error), "The payload is JSON, and every is seconds.") from None
        for text in (self.name, self.job_type, self.queue):
            if not 1 <= len(text.encode()) <= 200 or text != text.strip() or not text.isprintable():
                raise ScheduleInvalid(
                    self.name, f"{text!r} is no name", "Use 1 to 200 bytes, no control characters, no space at an end."
                )
        if self.exclusive and self.scope is None:
            raise ScheduleInvalid(self.name, "it is exclusive and has no scope", "Name what must not run twice.")
        if not -1000 <= self.priority <= 1000:
            raise ScheduleInvalid(self.name, f"priority {self.priority} is out of range", "Use -1000 to 1000.")
        if len(self.tags) >= 50:
            raise ScheduleInvalid(self.name, "there are too many tags", "Use at most 49.")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ScheduleInvalid(self.name, "max_attempts is less than 1", "Use 1 for a single attempt.")
        if self.timeout_seconds is not None and not 0 < self.timeout_seconds < float("inf"):
            raise ScheduleInvalid(self.name, "timeout_seconds is not a positive number", "Leave it out for none.")

    @property
    def _interval(self) -> timedelta | None:
        return self.every if self.every is None or isinstance(self.every, timedelta) else timedelta(seconds=self.every)

    def as_row(self) -> dict[str, Any]:
        row = asdict(self)
        del row["every"]
        row["payload"] = dict(self.payload or {})
        row["tags"] = list(self.tags)
        row["every_seconds"] = None if self._interval is None else self._interval.total_seconds()
        return row


class ScheduleOptions(TypedDict, total=False):
    """The optional fields of Schedule, as keyword arguments of `schedule`. One of `cron` and `every` is needed."""

    payload: Mapping[str, Any] | None
    cron: str | None
    every: timedelta | float | None
    timezone: str
    catch_up: bool
    queue: str
    priority: int
    scope: str | None
    exclusive: bool
    tags: Sequence[str]
    max_attempts: int | None
    timeout_seconds: float | None


async def declare(connection: Connection, schedules: Iterable[Schedule]) -> None:
    """Writes those that differ from what the table has; the others are not touched."""
    await connection.execute(statements.RECONSIDER_SCHEDULES)
    rows = encode([schedule.as_row() for schedule in schedules])
    for record in await connection.fetch(statements.DECLARE_SCHEDULES, rows):
        log.info("schedule written", schedule=record["name"])
