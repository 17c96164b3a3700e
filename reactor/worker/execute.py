"""Executes a claimed job: calls its handler, and returns what is to be written of the attempt."""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

from reactor.children import Children
from reactor.database.failures import Failure, server_failure
from reactor.database.jsonb import encode
from reactor.database.retry import RetryPolicy
from reactor.error_text import describe, first_line
from reactor.handlers.attempt import CLOSING, ENDED, RUNNING, Attempt, Stop
from reactor.handlers.context import Context
from reactor.handlers.registry import Handler
from reactor.handlers.services import Services
from reactor.handlers.signature import PayloadInvalid
from reactor.handlers.steps import Summary
from reactor.handlers.stored_log import CAPTURING
from reactor.handlers.sync_context import run_in_thread
from reactor.job import Job, JobState
from reactor.outcome import (
    Completed,
    Ending,
    Errored,
    Fail,
    Failed,
    Outcome,
    Partial,
    Released,
    Retry,
    Snooze,
    Snoozed,
    in_seconds,
    keeps_data,
)

_CALLS = 5
_REPEATED = RetryPolicy()
_LATER = frozenset({Failure.LOCKED, Failure.SLOW, Failure.OUT_OF_TIME})
"""Each try takes as long as a timeout, and what was in its way is likely to be there still."""
_RELEASED = RetryPolicy(first_seconds=1.0, longest_seconds=60.0)

Done = TypeVar("Done", bound=Completed | Partial | Failed)


class End(Enum):
    """Ends of an attempt that are not its own to write."""

    STALE = "the job is not this attempt's any more"
    INTERRUPTED = "by a shutdown: the release of the worker's claims gives it back"


class Execution:
    """One attempt in its slot: the task that runs it, its timer, and its entry among the running attempts."""

    __slots__ = ("attempt", "entry", "handler", "is_given_up", "job", "task", "timeout_seconds", "timer")

    def __init__(self, job: Job, handler: Handler, services: Services) -> None:
        self.job = job
        self.handler = handler
        self.attempt = Attempt(job, services, handler.log_level)
        self.timeout_seconds = handler.timeout_seconds if job.timeout_seconds is None else job.timeout_seconds
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.entry = -1
        self.is_given_up = False
        """Its end is decided without it: what it returns is ignored."""

    @property
    def _captures(self) -> bool:
        captures = self.handler.captures_logging
        return self.attempt.services.captures_logging if captures is None else captures

    @property
    def is_once(self) -> bool:
        return (self.job.delivery or self.handler.delivery) == "at_most_once"

    def stop(self, why: Stop) -> None:
        """An async handler is cancelled, a thread notices at its next call of the context."""
        attempt = self.attempt
        if attempt.stop_because is why:
            return  # once: another cancellation would hit whatever it does to clean up
        if attempt.stop_because is None or why is Stop.TAKEN:  # nothing may be written of a job that is lost
            attempt.stop_because = why
        if self.task is not None and attempt.can_be_cancelled:
            self.task.cancel()

    async def run(self) -> Ending | JobState | End:
        """Returns what is to be written of the attempt, or the state that its own transaction has written."""
        try:
            return await self._call_until_done()
        except asyncio.CancelledError:
            self.attempt.phase = CLOSING
            if self.attempt.work is not None:
                await self.attempt.work.roll_back()
            match self.attempt.stop_because:
                case Stop.TIMEOUT:
                    return self._ending(self.timed_out())
                case Stop.SHUTDOWN:
                    return End.INTERRUPTED
                case _:
                    return End.STALE
        finally:
            self.attempt.phase = ENDED

    async def _call_until_done(self) -> Ending | JobState | End:
        """What the server undid through no fault of the handler is not charged: it is run again at once where that may
        help, else later."""
        for call in range(1, _CALLS + 1):
            if self.attempt.stop_because is not None:
                raise asyncio.CancelledError
            self.attempt.phase = RUNNING
            if call > 1:
                await asyncio.sleep(_REPEATED.pause_after(call - 1))
            if self.is_once:
                await self.attempt.start_once()
            called_at, outcome = time.monotonic(), None
            try:
                outcome = await (self._call_captured if self._captures else self._call_handler)(self.attempt)
                return await self._close(outcome)
            except Exception as error:
                work, raised, seconds = self.attempt.work, error, time.monotonic() - called_at
                if work is not None:
                    await work.roll_back()
                if work is None or not work.is_undone:
                    return self._ending(self._uncommitted(outcome, error))
            # The answer to a commit may have been lost. This question waits for a commit that is still under way.
            self.attempt.phase = CLOSING
            if not await self.attempt.is_held():
                return await self.attempt.committed_state() or End.STALE
            is_for_later = await self._is_for_later(work.undone_by, seconds)
            if is_for_later or call == _CALLS or self.is_once or self.attempt.stop_because is Stop.TIMEOUT:
                return self._ending(await self._released(raised))
            self.attempt.log.info("transaction repeated", calls=call, error=first_line(describe(raised)))
            self.attempt = self.attempt.repeat()
        raise AssertionError("unreachable")

    async def _is_for_later(self, undone_by: Failure | None, seconds: float) -> bool:
        """`seconds`: how long the call took. Of a session that was not in use when it ended, the driver does not say
        why: where it may have been by transaction_timeout, another call is likely to take as long."""
        if undone_by is not Failure.LOST:
            return undone_by in _LATER
        limit_seconds = await self.attempt.transaction_timeout()
        return 0 < limit_seconds <= seconds

    async def _call_captured(self, attempt: Attempt) -> Outcome:
        # The task of the next attempt inherits this context.
        token = CAPTURING.set(attempt.open_log())
        try:
            return await self._call_handler(attempt)
        finally:
            CAPTURING.reset(token)

    async def _call_handler(self, attempt: Attempt) -> Outcome:
        """Lets through what is not the handler's to decide: its cancellation, and a transaction to be run again."""
        context = Context(attempt)
        outcome: Outcome
        try:
            if attempt.services.arounds:
                returned = await self._call_surrounded(context)
            else:
                returned = await self._call(context)
        except PayloadInvalid as error:
            return Failed(f"The payload does not fit {self.handler.name}: {error}")
        except Fail as error:
            outcome = failed = self._failed(error)
            if not failed.keeps_data:
                return failed
        except Retry as error:
            return Errored(str(error), error.after_seconds)
        except Snooze as error:
            if self.is_once:
                return Failed(f"{error}\n\nIt is delivered at most once, and does not start again.")
            return Snoozed(error.after_seconds, error.message)
        except asyncio.CancelledError:
            if attempt.is_stopping:
                raise
            return self._errored(asyncio.CancelledError("The handler was cancelled from within."))
        except BaseException as error:
            # SystemExit, and whatever else libraries (pytest's, for one) hide from `except Exception`.
            if attempt.is_stopping:
                raise asyncio.CancelledError from error
            if attempt.work is not None:
                attempt.work.note(error)
                if attempt.work.is_undone:
                    raise
            if attempt.uses_pool and server_failure(error) is not None:
                return await self._released(error)
            return self._errored(error)
        else:
            outcome = self._outcome(returned)
        if attempt.work is not None and attempt.work.lost_its_transaction:
            return Failed(
                f"{self.handler.name} ended its transaction with COMMIT or ROLLBACK as SQL. It is committed when the "
                "handler returns; what was done before can't be undone."
            )
        return outcome

    def _call(self, context: Context) -> Awaitable[Any]:
        handler, attempt = self.handler, self.attempt
        if handler.in_thread:
            return run_in_thread(
                attempt.services.executor, handler.function, lambda sync: handler.arguments(self.job, sync), attempt
            )
        called: Awaitable[Any] = handler.function(*handler.arguments(self.job, context))
        return called

    def _outcome(self, returned: Any) -> Outcome:
        if isinstance(returned, Summary):
            returned = returned.counts
        if returned is None:
            return self._completed(None)
        if isinstance(returned, Completed | Partial):
            return self._checked(returned)
        checked = self._checked(Completed(returned))
        return self._completed(checked.result) if isinstance(checked, Completed) else checked

    def _failed(self, error: Fail) -> Failed:
        text = str(error) or "The handler failed without saying why."
        checked = self._checked(Failed(text, error.result, error.message, error.keep_data))
        return checked if checked.error == text else Failed(f"{text}\n\n{checked.error}")

    def _checked(self, outcome: Done) -> Done | Failed:
        """Checks now whether the result can be stored: data and children may be committed together with it."""
        result: Any = outcome.result
        message: Any = outcome.message
        try:
            if hasattr(result, "model_dump"):
                result = result.model_dump(mode="json")
            if isinstance(result, dict):
                encode(result)
        except ValueError as error:
            return Failed(f"{self.handler.name} returned a value that is not valid JSON: {error}")
        for found, allowed in ((result, dict), (message, str)):
            if found is not None and not isinstance(found, allowed):
                return Failed(
                    f"{self.handler.name} returned {type(found).__name__}; a handler returns a dict, a pydantic model, "
                    "nothing, what ctx.steps(...) returned, or a result and a text in Completed(...) or Partial(...). "
                    "It raises Fail(...), Retry(...) and Snooze(...)."
                )
        return outcome if result is outcome.result else replace(outcome, result=result)

    def _completed(self, result: dict[str, Any] | None) -> Outcome:
        if self.attempt.work is None:
            return Completed(result)
        return self.attempt.work.outcome(result, with_message=not self.attempt.reports_message)

    async def _close(self, outcome: Outcome) -> Ending | JobState | End:
        attempt, work = self.attempt, self.attempt.work
        if work is None:
            return self._ending(outcome)
        if not keeps_data(outcome):
            await work.roll_back()
            return self._ending(outcome)
        ending = self._ending(outcome, work.children)
        if work.in_transaction:
            attempt.phase = CLOSING
            if ending.log is not None and not await attempt.services.writers.logs.hand_over(ending.log):
                ending = ending._replace(log=None)
            return await work.commit(ending) or End.STALE
        for record in work.last_steps():
            attempt.check_held(await attempt.services.writers.steps.record(record, attempt.progress_of_steps))
        return ending

    def _ending(self, outcome: Outcome, children: Children | None = None) -> Ending:
        return Ending(self.job.id, self.job.attempt_id, outcome, children, log=self.attempt.job_log)

    def timed_out(self) -> Errored | Failed:
        return self._errored(TimeoutError(f"The handler did not end within {self.timeout_seconds:g} s."))

    def _errored(self, error: BaseException) -> Errored | Failed:
        """The one place that asks the handler's backoff, which is the user's code and may be wrong."""
        try:
            delay = in_seconds(self.handler.backoff(self.job.attempts, error))
        except Exception as mistake:
            return Failed(f"{describe(error)}\n\nAnd its backoff failed: {describe(mistake)}")
        return Errored(describe(error), delay)

    def _uncommitted(self, outcome: Outcome | None, error: Exception) -> Outcome:
        """`error`: of the handler, or of the commit. A handler that has failed for good is not called again because its
        data can't be kept."""
        if isinstance(outcome, Failed):
            return Failed(f"{outcome.error}\n\nIts data could not be kept: {describe(error)}", outcome.result)
        return self._errored(error)

    async def _released(self, error: BaseException) -> Released:
        return Released(describe(error), _RELEASED.pause_after(1 + await self.attempt.releases()))

    async def _call_surrounded(self, context: Context) -> Any:
        raised: BaseException | None = None
        async with AsyncExitStack() as stack:
            for around in self.attempt.services.arounds:
                await stack.enter_async_context(around(self.job, context))
            try:
                return await self._call(context)
            except BaseException as error:
                raised = error
                raise
        # One of them swallowed it; the attempt has failed all the same.
        raise raised
