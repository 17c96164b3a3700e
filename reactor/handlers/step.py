"""A step as a handler plans it: what it calls, how often and for how long, and which one a piece of code runs in."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from reactor.errors import StepInvalid
from reactor.handlers.backoff import Backoff, exponential, fixed
from reactor.outcome import in_seconds

_DEFAULT_BACKOFF = exponential()


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a step may run, the pause after a run that failed, and how long a run may take. None: not given."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    timeout_seconds: float | None = None

    def or_else(self, other: "Tries") -> "Tries":
        """Takes what is not given here from `other`."""
        return Tries(
            self.max_attempts or other.max_attempts,
            self.backoff or other.backoff,
            self.timeout_seconds or other.timeout_seconds,
        )

    @property
    def limit(self) -> int:
        return self.max_attempts or 1

    def pause_after(self, run: int, error: BaseException) -> float | timedelta:
        return (self.backoff or _DEFAULT_BACKOFF)(run, error)


def tries(
    name: object,
    max_attempts: int | None,
    backoff: Backoff | float | timedelta | None,
    timeout_seconds: float | None,
) -> Tries:
    """From the arguments of a handler, checked. `name`: of the step, for the error."""
    if max_attempts is not None and (type(max_attempts) is not int or not 1 <= max_attempts < 2**31):
        raise StepInvalid(name, f"max_attempts is {max_attempts!r}", "Use 1 or more; 1 is a single attempt.")
    if timeout_seconds is not None and not 0 < timeout_seconds < float("inf"):
        raise StepInvalid(name, f"timeout_seconds is {timeout_seconds!r}", "Use a positive number, or leave it out.")
    if backoff is not None and not callable(backoff):
        if not 0 <= in_seconds(backoff) < float("inf"):
            raise StepInvalid(name, f"backoff is {backoff!r}", "Use 0 or more seconds, or a function.")
        backoff = fixed(backoff)
    return Tries(max_attempts, backoff, timeout_seconds)


class Step:
    """One unit of a plan: `Step("2026-01-02/snow", run_model, day, model)`. A plain function is run in a thread.

    `max_attempts`: how often it may run if it fails (1). `backoff`: seconds between its runs, or a function of the
    run's number and its error; the default grows from 1 s to an hour. `timeout_seconds`: how long a run may take.
    """

    __slots__ = ("arguments", "function", "name", "tries")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        max_attempts: int | None = None,
        backoff: Backoff | float | timedelta | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.arguments = arguments
        self.tries = tries(name, max_attempts, backoff, timeout_seconds)

    def or_else(self, tries: Tries) -> "Step":
        """With the tries of its plan, where it has none of its own."""
        step = Step(self.name, self.function, *self.arguments)
        step.tries = self.tries.or_else(tries)
        return step


class RunningStep:
    """One run of a step."""

    __slots__ = ("_deadline", "name")

    def __init__(self, step: Step) -> None:
        self.name = step.name
        timeout_seconds = step.tries.timeout_seconds
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds

    @property
    def is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def end(self) -> None:
        """Tasks that it leaves behind are not late."""
        self._deadline = None


_current: ContextVar[RunningStep | None] = ContextVar("reactor_step", default=None)


def current_step() -> RunningStep | None:
    """The step that the calling code runs in, also in a thread or a task that the step has started."""
    return _current.get()


def step_name() -> str | None:
    step = _current.get()
    return None if step is None else step.name


@contextmanager
def running_step(step: Step) -> Iterator[RunningStep]:
    running = RunningStep(step)
    token = _current.set(running)
    try:
        yield running
    finally:
        running.end()
        _current.reset(token)


def timed_out(step: Step) -> TimeoutError:
    return TimeoutError(f"The step did not end within {step.tries.timeout_seconds:g} s.")
