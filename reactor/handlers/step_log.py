"""What is known of an attempt's steps, and what follows from it for the job."""

import json
import time
import unicodedata
from collections import Counter
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
NOT_PLANNED = "Not part of the plan."
"""As reactor.end_steps writes it."""


class StepLog:
    """In memory; `record_step` keeps the database in step with it."""

    def __init__(self, job: Job) -> None:
        self.states: dict[str, StepState] = {}
        self.results: dict[str, Any] = {}
        """What the completed ones returned, in this attempt or an earlier one."""
        self.errors: dict[str, str] = {}
        self.planned: set[str] = set()
        """Those that progress is a fraction of."""
        self.planned_in_groups: set[str] = set()
        self.is_known = False
        """Whether the steps that the job had before were read."""
        self._attempts: dict[str, int] = {}
        """How often each has run to an end."""
        self._due: dict[str, float] = {}
        """When those that failed run again, by the monotonic clock."""
        self._started: dict[str, float] = {}
        self._running: dict[str, None] = {}
        """In the order in which they started."""
        self._others: dict[str, StepState] = {}
        """Steps that the job had before, and that this attempt has not planned yet."""
        self._completed_before: dict[str, Any] = {}
        """The results of those of them that an earlier attempt completed."""
        self._counts: Counter[StepState] = Counter()
        self._are_submitted = False
        """Steps were named when the job was submitted: then it is known how many follow."""
        self._ran: dict[str, float] = {}
        """How long runs took whose end is not recorded yet, in seconds."""
        self._current: str | None = None
        self._job = job
        self._held_back: dict[str, Record] = {}
        """Completions that are true only if the attempt's transaction is committed."""
        self._undone: set[str] = set()
        self._finished = 0

    def check_new(self, names: Sequence[str]) -> None:
        for name in names:
            _check_name(name)
        if len(set(names)) < len(names) or not self.states.keys().isdisjoint(names):
            counts = Counter([*names, *self.states])
            twice = next(name for name in names if counts[name] > 1)
            raise StepInvalid(twice, "it is planned twice", "Give each step of a job a name of its own.")

    def add(self, names: Sequence[str], *, started: bool) -> dict[str, int]:
        """Returns those that an earlier attempt did not complete, as far as is known, with positions."""
        if not started:
            self.planned_in_groups.update(names)
        if not started or self._are_submitted:
            self.planned.update(names)
        positions = dict(zip(names, range(len(self.states), len(self.states) + len(names)), strict=True))
        for name in names:
            self._take_other(name)
            self.set(name, StepState.RUNNING if started and name not in self._due else StepState.PENDING)
        for name in self._take_over(names):
            del positions[name]
        return positions

    def learn(self, stored: Mapping[str, Stored]) -> None:
        """What the job had before of the steps that were added, and of others."""
        self.is_known = True
        now = time.monotonic()
        for name, step in stored.items():
            if step.state is StepState.COMPLETED:
                self._completed_before[name] = step.result
            elif step.state in (StepState.PENDING, StepState.RUNNING):
                self._attempts[name] = step.attempts
                if step.pause_seconds is not None:
                    self._due[name] = now + step.pause_seconds
                    if name in self.states:
                        self.set(name, StepState.PENDING)
            if name not in self.states:
                self._others[name] = step.state
                self._counts[step.state] += 1
        submitted = {name for name, step in stored.items() if step.is_submitted}
        if submitted:
            self._are_submitted = True
            self.planned |= submitted | self.states.keys()
            self._finished = sum(stored[n].state is StepState.COMPLETED for n in submitted if n not in self.states)
        self._take_over(list(self.states))

    def _take_other(self, name: str) -> None:
        state = self._others.pop(name, None)
        if state is not None:
            self._counts[state] -= 1
            self._finished -= name in self.planned and state is StepState.COMPLETED

    def _take_over(self, names: Sequence[str]) -> list[str]:
        """The results of those that an earlier attempt completed. Returns their names."""
        completed = [name for name in names if name in self._completed_before]
        for name in completed:
            self.results[name] = self._completed_before[name]
            self.set(name, StepState.COMPLETED)
        return completed

    def set(self, name: str, state: StepState, error: str | None = None) -> None:
        before = self.states.get(name)
        if name in self.planned:
            self._finished += _is_finished(state) - _is_finished(before)
        if before is not None:
            self._counts[before] -= 1
        self._counts[state] += 1
        if before is StepState.RUNNING:
            del self._running[name]
            self._ran[name] = round(time.monotonic() - self._started[name], 6)
        if state is StepState.RUNNING:
            self._current = name
            self._running[name] = None
            self._started[name] = time.monotonic()
        self.states[name] = state
        if error is not None:
            self.errors[name] = error

    def attempts(self, name: str) -> int:
        """How often the step has run to an end."""
        return self._attempts.get(name, 0)

    def put_off(self, name: str, pause_seconds: float, error: str, *, charged: bool) -> None:
        """It runs again after this time."""
        self._due[name] = time.monotonic() + pause_seconds
        self._attempts[name] = self.attempts(name) + charged
        self.set(name, StepState.PENDING, storable(error))

    def start_over(self, name: str, error: str) -> None:
        """It has all of its runs again."""
        self._attempts[name] = 0
        self.set(name, StepState.PENDING, storable(error))

    def take_pause(self, name: str) -> float:
        """How long it has to wait before it runs."""
        due = self._due.pop(name, None)
        return 0.0 if due is None else max(0.0, due - time.monotonic())

    def record(
        self,
        name: str,
        state: StepState,
        result: str | None = None,
        error: str | None = None,
        pause_seconds: float | None = None,
    ) -> Record:
        error = None if error is None else storable(error)
        ran = None if state is StepState.RUNNING else self._ran.pop(name, None)
        return Record(
            self._job.id,
            self._job.attempt_id,
            name,
            state,
            result,
            error,
            None if ran is None else self.attempts(name) + _is_finished(state),
            pause_seconds,
            ran,
            self._started.get(name),
        )

    def progress(self) -> Progress:
        """How much of the plan is done. Without a plan the number of steps to follow is unknown."""
        counts = self._counts_as_stored()
        if not self.planned:
            return Progress(None, self._current, counts)
        total = len(self.planned)
        message = None if self._current is None else f"{self._current} ({self._finished} of {total} done)"
        return Progress(self._finished / total, message, counts)

    def _counts_as_stored(self) -> str:
        """Completions that wait for the transaction are not in the database yet."""
        counts = dict.fromkeys(StepState, 0) | self._counts
        counts[StepState.COMPLETED] -= len(self._held_back)
        counts[StepState.RUNNING] += len(self._held_back)
        current = next(reversed(self._running), None) or next(reversed(self._held_back), None)
        return json.dumps({"total": sum(counts.values()), **counts, "current": current})

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
        interrupted = [n for n, state in self.states.items() if state in (StepState.RUNNING, StepState.PENDING)]
        for name in interrupted:
            why = "It was interrupted." if self.states[name] is StepState.RUNNING else "It did not run."
            self.set(name, StepState.FAILED, self.errors.get(name, why))
        dropped = [name for name, state in self._others.items() if state is not StepState.COMPLETED]
        for name in dropped:
            self._take_other(name)
            self.set(name, StepState.SKIPPED)
        held_back, self._held_back = list(self._held_back.values()), {}
        return [
            *held_back,
            *(self.record(name, StepState.FAILED, error=self.errors[name]) for name in self._undone),
            *(self.record(name, StepState.FAILED, error=self.errors[name]) for name in interrupted),
            *(self.record(name, StepState.SKIPPED, error=NOT_PLANNED) for name in dropped),
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
