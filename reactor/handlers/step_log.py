"""What is known of an attempt's steps, and what follows from it for the job."""

import json
import time
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from reactor.database.jsonb import encode, storable
from reactor.error_text import describe, first_line
from reactor.errors import StepInvalid
from reactor.job import Job
from reactor.lifecycle.steps import Progress, Record, StepState, Stored
from reactor.outcome import Completed, Failed, Outcome, Partial

_LONGEST_NAME = 500
_ERRORS_NAMED = 5


class StepLog:
    """In memory; `record_step` keeps the database in step with it."""

    def __init__(self, job: Job) -> None:
        self.states: dict[str, StepState] = {}
        self.results: dict[str, Any] = {}
        """What the completed ones returned, in this attempt or an earlier one."""
        self.errors: dict[str, str] = {}
        self.planned: set[str] = set()
        self.stored: Mapping[str, Stored] | None = None
        """Steps of earlier attempts; None until they are read."""
        self.current: str | None = None
        """The step that started last."""
        self._started: dict[str, float] = {}
        self._job = job
        self._held_back: dict[str, Record] = {}
        """Completions that are true only if the attempt's transaction is committed."""
        self._undone: set[str] = set()
        self._finished = 0

    def check_new(self, names: Sequence[str]) -> None:
        for name in names:
            _check_name(name)
        if len(set(names)) < len(names) or not self.states.keys().isdisjoint(names):
            twice = next(name for n, name in enumerate(names) if name in self.states or name in names[:n])
            raise StepInvalid(twice, "it is planned twice", "Give each step of a job a name of its own.")

    def add(self, names: Sequence[str], *, started: bool) -> dict[str, int]:
        """Returns those that an earlier attempt did not complete, as far as is known, with positions."""
        if not started:
            self.planned.update(names)
        positions = dict(zip(names, range(len(self.states), len(self.states) + len(names)), strict=True))
        for name in names:
            self.set(name, StepState.RUNNING if started else StepState.PENDING)
        for name in self._take_over(names):
            del positions[name]
        return positions

    def learn(self, stored: Mapping[str, Stored]) -> None:
        """What earlier attempts left of the steps that were added."""
        self.stored = stored
        self._take_over(list(self.states))

    def _take_over(self, names: Sequence[str]) -> list[str]:
        """The results of those that an earlier attempt completed. Returns their names."""
        stored = self.stored or {}
        completed = [name for name in names if name in stored and stored[name].state is StepState.COMPLETED]
        for name in completed:
            self.results[name] = stored[name].result
            self.set(name, StepState.COMPLETED)
        return completed

    def set(self, name: str, state: StepState, error: str | None = None) -> None:
        if name in self.planned:
            self._finished += _is_finished(state) - _is_finished(self.states.get(name))
        if state is StepState.RUNNING:
            self.current = name
            self._started[name] = time.monotonic()
        self.states[name] = state
        if error is not None:
            self.errors[name] = error

    def record(self, name: str, state: StepState, result: str | None = None, error: str | None = None) -> Record:
        error = None if error is None else storable(error)
        return Record(self._job.id, self._job.attempt_id, name, state, result, error, self._started.get(name))

    def progress(self) -> Progress:
        """How much of the plan is done. Without a plan the number of steps to follow is unknown."""
        if not self.planned:
            return Progress(message=self.current)
        total = len(self.planned)
        message = None if self.current is None else f"{self.current} ({self._finished} of {total} done)"
        return Progress(self._finished / total, message)

    # The transaction, and the end

    def hold_back(self, record: Record) -> None:
        self._held_back[record.name] = record

    @property
    def held_back(self) -> int:
        return len(self._held_back)

    def undo(self, since: int, error: BaseException) -> None:
        """A block of the transaction was undone, and with it the steps that were completed in it."""
        for name in list(self._held_back)[since:]:
            del self._held_back[name]
            self._undone.add(name)
            self.set(name, StepState.FAILED, f"Undone with the ctx.transaction() it ran in, by: {describe(error)}")

    def last_records(self) -> list[Record]:
        """Records to be written with the job's end: completions that waited for the transaction, steps that were undone
        or interrupted, and steps of earlier attempts that are not part of the plan any more."""
        running = [name for name, state in self.states.items() if state is StepState.RUNNING]
        dropped = [
            name
            for name, stored in (self.stored or {}).items()
            if name not in self.states and stored.state is not StepState.COMPLETED
        ]
        return [
            *self._held_back.values(),
            *(self.record(name, StepState.FAILED, error=self.errors[name]) for name in self._undone),
            *(self.record(name, StepState.FAILED, error="It was interrupted.") for name in running),
            *(self.record(name, StepState.SKIPPED, error="Not part of the plan any more.") for name in dropped),
        ]

    def outcome(self, result: dict[str, Any] | None, *, with_message: bool) -> Outcome:
        """All completed: completed. Some failed: partial. All failed: failed."""
        states = list(self.states.values())
        completed, skipped = states.count(StepState.COMPLETED), states.count(StepState.SKIPPED)
        missing = len(states) - completed - skipped
        if missing and not completed:
            return Failed(self._complaint(missing))
        message = f"{completed} of {len(states)} steps completed"
        if missing:
            message += f", {missing} failed"
        if skipped:
            message += f", {skipped} skipped"
        shown = message if with_message else None
        return Partial(result, shown) if missing else Completed(result, shown)

    def _complaint(self, missing: int) -> str:
        failed = [name for name, state in self.states.items() if state is StepState.FAILED]
        lines = [f"{name}: {first_line(self.errors[name])}" for name in failed[:_ERRORS_NAMED]]
        more = [f"and {len(failed) - _ERRORS_NAMED} more"] if len(failed) > _ERRORS_NAMED else []
        return "\n".join([f"None of {missing} steps completed.", *lines, *more])


def as_stored(result: str | None) -> Any:
    return None if result is None else json.loads(result)


def as_result(name: str, returned: Any) -> str | None:
    """The JSON to store for what a step returned."""
    if hasattr(returned, "model_dump"):
        returned = returned.model_dump(mode="json")
    try:
        return None if returned is None else encode(returned)
    except ValueError as error:
        raise unstorable(name, error) from error


def unstorable(name: str, error: Exception) -> StepInvalid:
    return StepInvalid(name, f"its result can't be stored: {error}", "Return what JSON can hold, or nothing.")


def _is_finished(state: StepState | None) -> bool:
    return state in (StepState.COMPLETED, StepState.FAILED, StepState.SKIPPED)


def _check_name(name: object) -> None:
    remedy = f"Use a text of 1 to {_LONGEST_NAME} bytes without control characters."
    if not isinstance(name, str):
        raise StepInvalid(name, "its name is not a text", remedy)
    if not 1 <= len(name.encode(errors="replace")) <= _LONGEST_NAME:
        raise StepInvalid(name[:100], "its name is empty or too long", remedy)
    if storable(name) != name or any(unicodedata.category(character) == "Cc" for character in name):
        raise StepInvalid(name, "its name can't be stored", remedy)
