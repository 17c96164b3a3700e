"""The outcomes of an attempt: values for the engine, and exceptions for handlers."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from reactor.children import Children
from reactor.job_log import JobLog


@dataclass(frozen=True, slots=True)
class Completed:
    """Everything was done."""

    result: dict[str, Any] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Partial:
    """Part of the work was done. Jobs that need this one to be completed are cancelled."""

    result: dict[str, Any] | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed permanently, even if attempts are left."""

    error: str
    result: dict[str, Any] | None = None
    message: str | None = None
    keeps_data: bool = False
    """The handler's transaction is committed, and its children are created."""


@dataclass(frozen=True, slots=True)
class Errored:
    """Retried after the delay while attempts are left, otherwise failed."""

    error: str
    retry_after_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Run again later; no attempt is charged."""

    for_seconds: float
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The server undid the attempt: run again later. No attempt is charged, unless this has happened too often."""

    error: str
    retry_after_seconds: float


Outcome = Completed | Partial | Failed | Errored | Snoozed | Released


class Ending(NamedTuple):
    """The end of one attempt. It is only written while that attempt still holds the job."""

    job_id: int
    attempt_id: UUID
    outcome: Outcome
    children: Children | None = None
    """The chained jobs, which are created together with the outcome."""
    maybe_written: bool = False
    """An earlier try may have been committed, although no answer came."""
    log: JobLog | None = None
    """What the handler logged and is not stored yet: written together with the outcome."""


def keeps_data(outcome: Outcome) -> bool:
    """Whether the handler's transaction is committed with this outcome, and its children are created."""
    return isinstance(outcome, Completed | Partial) or (isinstance(outcome, Failed) and outcome.keeps_data)


class Fail(Exception):
    """Raised by a handler: fail the job permanently, even if attempts are left.

    Without `keep_data` everything that the handler did in ctx.transaction() is undone. With it, that is committed
    together with the failure, and the chained jobs are created.
    """

    def __init__(
        self,
        error: object = "",
        *,
        result: dict[str, Any] | None = None,
        message: str | None = None,
        keep_data: bool = False,
    ) -> None:
        super().__init__(error)
        self.result = result
        self.message = message
        self.keep_data = keep_data

    @classmethod
    def keeps_data(cls, error: BaseException) -> bool:
        return isinstance(error, cls) and error.keep_data


class Retry(Exception):
    """Raised by a handler: retry after a delay while attempts are left."""

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(message or "The handler asked for another attempt.")
        self.after_seconds = in_seconds(after)


class Snooze(Exception):
    """Raised by a handler: run again after a delay. No attempt is charged."""

    def __init__(self, after: float | timedelta, message: str | None = None) -> None:
        super().__init__(message or "The handler asked to run later.")
        self.after_seconds = in_seconds(after)
        self.message = None if message is None else str(message)


class Skip(Exception):
    """Raised by a step that has nothing to do. It is recorded as skipped and does not count as a failure."""


class Cancelled(asyncio.CancelledError):
    """Raised in a handler whose attempt must stop. Not an Exception, so that `except Exception` does not catch it."""


def in_seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
