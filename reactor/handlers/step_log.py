"""What becomes of an attempt's steps: known here, and written down for everybody."""

import asyncio
import json
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from reactor.database.jsonb import encode, storable
from reactor.error_text import describe, first_line
from reactor.errors import StepInvalid
from reactor.lifecycle.batch_writer import Settler
from reactor.lifecycle.step_writer import LONE_LOCK_WAIT_MS
from reactor.lifecycle.steps import Record, StepState, Stored, plan_steps, stored_steps
from reactor.outcome import Completed, Fail, Failed, Outcome, Partial, Retry, Skip, Snooze

if TYPE_CHECKING:
    from reactor.handlers.context import Context

_LONGEST_NAME = 500
_ERRORS_NAMED = 5
_BLOCKED_PAUSE_SECONDS = 0.5


class Logbook:
    def __init__(self, context: "Context", settler: Settler) -> None:
        self.states: dict[str, StepState] = {}
        self.results: dict[str, Any] = {}
        """What the completed ones returned, now or in an earlier attempt."""
        self.errors: dict[str, str] = {}
        self._context = context
        self._settler = settler
        self._stored: dict[str, Stored] | None = None
        self._held_back: dict[str, Record] = {}
        """Completions that are true only if the attempt's transaction is committed."""
        self._undone: set[str] = set()
        self._planned: set[str] = set()
        self._finished = 0

    async def begin(self, name: str) -> bool:
        """False: it is completed already, and not to be run."""
        self._context.check()
        await self._take([name], begun=True)
        self._say(name)
        return self.states[name] is not StepState.COMPLETED

    async def succeed(self, name: str, result: str | None) -> Any:
        """Gives back what a later attempt would get: the result as it is stored."""
        try:
            await self._record(name, StepState.COMPLETED, result=result)
        except asyncpg.PostgresError as error:
            mistake = _unstorable(name, error)
            await self.fail(name, mistake)
            raise mistake from error
        self.results[name] = None if result is None else json.loads(result)
        return self.results[name]

    async def fail(self, name: str, error: BaseException) -> None:
        self._context.note(error)
        if self._context.to_be_repeated:
            return
        match error:
            case Skip():
                await self._record(name, StepState.SKIPPED, error=str(error) or None)
            case Retry() | Snooze() if name not in self._planned:
                pass  # it goes back with its job
            case Fail() | Retry() | Snooze():
                await self._record(name, StepState.FAILED, error=str(error) or "The step failed without saying why.")
            case _:
                await self._record(name, StepState.FAILED, error=describe(error))

    async def plan(self, names: Sequence[str]) -> None:
        """All that is to come, so that everybody sees it."""
        await self._take(names, begun=False)
        self._say()

    async def start(self, name: str) -> None:
        self._context.check()
        await self._record(name, StepState.RUNNING)

    async def _take(self, names: Sequence[str], *, begun: bool) -> None:
        """Writes down those that are to be run, and takes over what is stored of the completed ones."""
        for name in names:
            _check_name(name)
        if len(set(names)) < len(names) or not self.states.keys().isdisjoint(names):
            twice = next(name for n, name in enumerate(names) if name in self.states or name in names[:n])
            raise StepInvalid(twice, "it is planned twice", "Give each step of a job a name of its own.")
        if self._stored is None:
            job_id = self._context.job.id
            self._stored = await self._settler.ask(lambda connection: stored_steps(connection, job_id))
        if not begun:
            self._planned.update(names)
        first, due = len(self.states), {}
        for position, name in enumerate(names, first):
            stored = self._stored.get(name)
            if stored is not None and stored.state is StepState.COMPLETED:
                self.results[name] = stored.result
                self._set(name, StepState.COMPLETED)
            else:
                due[name] = position
                self._set(name, StepState.RUNNING if begun else StepState.PENDING)
        if due:
            self._context.hold(await self._write_plan(due, begun))

    async def _write_plan(self, positions: dict[str, int], begun: bool) -> bool:
        job = self._context.job
        while True:
            try:
                return await self._settler.ask(
                    lambda connection: plan_steps(
                        connection, job.id, job.attempt_id, positions, begun=begun, lock_wait_ms=LONE_LOCK_WAIT_MS
                    )
                )
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(_BLOCKED_PAUSE_SECONDS)
                self._context.check()

    async def _record(
        self, name: str, state: StepState, *, result: str | None = None, error: str | None = None
    ) -> None:
        record = self._as_record(name, state, result, error)
        self._set(name, state, record.error)
        self._say(name if state is StepState.RUNNING else None)
        if state is StepState.COMPLETED and self._context.in_transaction:
            self._held_back[name] = record
        else:
            self._context.hold(await self._settler.record(record))

    def _as_record(self, name: str, state: StepState, result: str | None = None, error: str | None = None) -> Record:
        job = self._context.job
        return Record(job.id, job.attempt_id, name, state, result, None if error is None else storable(error))

    def _set(self, name: str, state: StepState, error: str | None = None) -> None:
        if name in self._planned:
            self._finished += _is_finished(state) - _is_finished(self.states.get(name))
        self.states[name] = state
        if error is not None:
            self.errors[name] = error

    def _say(self, current: str | None = None) -> None:
        """The job's progress: how much of the plan is done. Without a plan nobody knows how many are to follow."""
        if not self._planned:
            self._context.say(None, current)
            return
        total = len(self._planned)
        message = None if current is None else f"{current} ({self._finished} of {total} done)"
        self._context.say(self._finished / total, message)

    # The transaction, and the end

    @property
    def held_back(self) -> int:
        return len(self._held_back)

    def undo(self, since: int, error: BaseException) -> None:
        """A block of the transaction was undone, and with it the steps that were completed in it."""
        for name in list(self._held_back)[since:]:
            del self._held_back[name]
            self._undone.add(name)
            self._set(name, StepState.FAILED, f"Undone with the ctx.transaction() it ran in, by: {describe(error)}")

    def last_records(self) -> list[Record]:
        """What is to be written with the job's end: completions that waited for the transaction, steps that were undone
        or interrupted, and those of earlier attempts that are no part of the plan any more."""
        running = [name for name, state in self.states.items() if state is StepState.RUNNING]
        dropped = [
            name
            for name, stored in (self._stored or {}).items()
            if name not in self.states and stored.state is not StepState.COMPLETED
        ]
        return [
            *self._held_back.values(),
            *(self._as_record(name, StepState.FAILED, error=self.errors[name]) for name in self._undone),
            *(self._as_record(name, StepState.FAILED, error="It was interrupted.") for name in running),
            *(self._as_record(name, StepState.SKIPPED, error="No part of the plan any more.") for name in dropped),
        ]

    async def close(self) -> None:
        """Where there is no transaction, just before the job's end."""
        for record in self.last_records():
            self._context.hold(await self._settler.record(record))

    def outcome(self, result: dict[str, Any] | None) -> Outcome:
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
        told = None if self._context.tells_message else message
        return Partial(result, told) if missing else Completed(result, told)

    def _complaint(self, missing: int) -> str:
        failed = [name for name, state in self.states.items() if state is StepState.FAILED]
        lines = [f"{name}: {first_line(self.errors[name])}" for name in failed[:_ERRORS_NAMED]]
        more = [f"and {len(failed) - _ERRORS_NAMED} more"] if len(failed) > _ERRORS_NAMED else []
        return "\n".join([f"None of {missing} steps completed.", *lines, *more])


def _is_finished(state: StepState | None) -> bool:
    return state in (StepState.COMPLETED, StepState.FAILED, StepState.SKIPPED)


def as_result(name: str, returned: Any) -> str | None:
    """What a step returned as it is stored: JSON."""
    if hasattr(returned, "model_dump"):
        returned = returned.model_dump(mode="json")
    try:
        return None if returned is None else encode(returned)
    except ValueError as error:
        raise _unstorable(name, error) from error


def _unstorable(name: str, error: Exception) -> StepInvalid:
    return StepInvalid(name, f"its result can't be stored: {error}", "Return what JSON can hold, or nothing.")


def _check_name(name: object) -> None:
    remedy = f"Use a text of 1 to {_LONGEST_NAME} bytes without control characters."
    if not isinstance(name, str):
        raise StepInvalid(name, "its name is no text", remedy)
    if not 1 <= len(name.encode(errors="replace")) <= _LONGEST_NAME:
        raise StepInvalid(name[:100], "its name is empty or too long", remedy)
    if storable(name) != name or any(unicodedata.category(character) == "Cc" for character in name):
        raise StepInvalid(name, "its name can't be stored", remedy)
