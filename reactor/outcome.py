"""How an attempt can end: as values, and as what a handler raises to say so."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Completed:
    """Everything was done."""

    result: dict[str, Any] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """Some of it was done: what waits for the completion of this job is cancelled."""

    result: dict[str, Any] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """For good, whatever attempts are left."""

    error: str


@dataclass(frozen=True, slots=True)
class Errored:
    """Again after the delay while attempts are left, else failed."""

    error: str
    retry_after_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Again later, at the cost of no attempt."""

    for_seconds: float
    message: str | None = None


Outcome = Completed | Partial | Failed | Errored | Snoozed


class Ending(NamedTuple):
    """One attempt's end. Only the attempt that still holds the job can write it."""

    job_id: int
    attempt_id: UUID
    outcome: Outcome
    children: str | None = None
    """The jobs that it chained, as JSON; they are created with its end, or not at all."""


class Fail(Exception):
    """Raised by a handler: the job has failed for good, whatever attempts are left."""


class Retry(Exception):
    """Raised by a handler: try again after so long, while attempts are left."""

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(message or "The handler asked for another attempt.")
        self.after_seconds = in_seconds(after)


class Snooze(Exception):
    """Raised by a handler: not now, again after so long. Costs no attempt."""

    def __init__(self, after: float | timedelta, message: str | None = None) -> None:
        super().__init__(message or "The handler asked to be called later.")
        self.after_seconds = in_seconds(after)
        self.message = None if message is None else str(message)


class Skip(Exception):
    """Raised by a step: there is nothing to do. It is recorded as skipped, and stands in nobody's way."""


class Cancelled(asyncio.CancelledError):
    """Raised in a handler whose attempt must stop. Not an Exception, so that `except Exception` lets it through."""


def in_seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
