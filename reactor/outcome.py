"""How an attempt can end, as values."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Completed:
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
