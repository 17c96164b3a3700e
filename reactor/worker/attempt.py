"""One attempt of a job, from its start to what is to be written of it."""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import Executor
from enum import Enum

from reactor.handlers.context import Context, Services
from reactor.handlers.registry import Around, Handler
from reactor.job import Job, JobState
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial
from reactor.worker.execute import errored, execute

_REPEATS = 5
_REPEAT_PAUSE_SECONDS = 0.05


class Stop(Enum):
    """Why an attempt is told to stop."""

    TAKEN = "The job was cancelled, or taken from this attempt."
    TIMEOUT = "It ran out of time."
    SHUTDOWN = "This pod is shutting down."


class End(Enum):
    """Ends of an attempt that are not its own to write."""

    STALE = "the job is not this attempt's any more"
    INTERRUPTED = "by a shutdown: whoever tidies up gives it back"


class Attempt:
    __slots__ = (
        "can_be_cancelled",
        "context",
        "handler",
        "job",
        "slot",
        "stop_because",
        "task",
        "timeout_seconds",
        "timer",
    )

    def __init__(self, job: Job, handler: Handler, services: Services) -> None:
        self.job = job
        self.handler = handler
        self.context = Context(job, services)
        self.timeout_seconds = handler.timeout_seconds if job.timeout_seconds is None else job.timeout_seconds
        self.stop_because: Stop | None = None
        self.can_be_cancelled = False
        """Not before its first step, which would never come; nor while its end is being written, or may have been: that
        the database has it no more is no reason to stop it then; nor while it cleans up."""
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.slot = -1

    def stop(self, why: Stop) -> None:
        """An async handler is cancelled, a thread is told at its next call of the context. The first reason counts,
        but for a job that is lost: nothing of that may be written."""
        if self.stop_because is why:
            return  # once: another cancellation would hit whatever it does to clean up
        if self.stop_because is None or why is Stop.TAKEN:
            self.stop_because = why
            self.context.stop_reason = why.value
        if self.task is not None and self.can_be_cancelled:
            self.task.cancel()

    async def run(self, arounds: Sequence[Around], executor: Executor) -> Ending | JobState | End:
        """What is to be written of it; or the state that its own transaction has written."""
        if self.stop_because is not None:
            return self._stopped()
        self.can_be_cancelled = True
        try:
            return await self._run(arounds, executor)
        except asyncio.CancelledError:
            self.can_be_cancelled = False
            await self.context.roll_back()
            return self._stopped()
        finally:
            self.context.end()

    async def _run(self, arounds: Sequence[Around], executor: Executor) -> Ending | JobState | End:
        """What the server undid through no fault of the handler's is run again at once: that costs no attempt."""
        for left in reversed(range(_REPEATS)):
            try:
                return await self._finish(await execute(self.handler, self.context, arounds, executor))
            except Exception as error:
                await self.context.roll_back()
                if not self.context.to_be_repeated or not left:
                    return self.context.ending(errored(self.handler, self.job.attempts, error), with_children=False)
            # The answer to a commit may have been lost. This question waits for a commit that is still under way.
            self.can_be_cancelled = False
            if not await self.context.confirm():
                return await self.context.committed() or End.STALE
            self.can_be_cancelled = True
            if self.stop_because is not None:
                return self._stopped()
            await asyncio.sleep(_REPEAT_PAUSE_SECONDS * random.uniform(0.5, 1.5))
            self.context = self.context.anew()
        raise AssertionError("unreachable")

    async def _finish(self, outcome: Outcome) -> Ending | JobState | End:
        done = isinstance(outcome, Completed | Partial)
        ending = self.context.ending(outcome, with_children=done)
        if not self.context.in_transaction:
            if done:
                await self.context.close()
            return ending
        if not done:
            await self.context.roll_back()
            return ending
        self.can_be_cancelled = False
        try:
            return await self.context.commit(ending) or End.STALE
        finally:
            self.can_be_cancelled = True

    def _stopped(self) -> Ending | End:
        match self.stop_because:
            case Stop.TIMEOUT:
                return self.context.ending(self.timed_out(), with_children=False)
            case Stop.SHUTDOWN:
                return End.INTERRUPTED
            case _:
                return End.STALE

    def timed_out(self) -> Errored | Failed:
        error = TimeoutError(f"The handler did not end within {self.timeout_seconds:g} s.")
        return errored(self.handler, self.job.attempts, error)
