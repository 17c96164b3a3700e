"""Runs claimed jobs, so many at a time, and sees each of them through to its settled end."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias
from uuid import UUID

from reactor.counts import Counts
from reactor.database.connection import Connection
from reactor.error_text import describe
from reactor.handlers.context import Services
from reactor.handlers.registry import Registry
from reactor.job import Job, JobState
from reactor.lifecycle.batch_writer import Settler
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.release import stopped
from reactor.lifecycle.settle import abandon
from reactor.log import get_logger
from reactor.outcome import Ending, Errored, Failed
from reactor.worker.attempt import Attempt, End, Stop
from reactor.worker.running_attempts import Begun

log = get_logger(__name__)
_log_level = logging.getLogger(__name__)

Waiter: TypeAlias = "asyncio.Future[JobState | None]"

# What a handler that was told to stop gets to do so.
_GIVE_UP_SECONDS = 2.0
# After that the supervisor takes it that the event loop is blocked, and ends the process.
_BLOCKED_SECONDS = 3.0
_LEAVE_SECONDS = 0.2


class Crew:
    def __init__(self, worker: Worker, registry: Registry, begun: Begun, counts: Counts, services: Services) -> None:
        self.on_ended: Callable[[], None] = lambda: None
        """Called whenever a place is free, or an attempt's end is settled."""
        self.on_worn: Callable[[], None] = lambda: None
        """Called when a handler does not stop: a process that can be replaced should be."""
        self.held: dict[UUID, int] = {}
        """Attempts that are ours, from the claim to the commit of their end, with their jobs."""
        self._worker = worker
        self._registry = registry
        self._begun = begun
        self._counts = counts
        self._services = services
        self._settler: Settler = services.settler
        self._executor = ThreadPoolExecutor(worker.capacity, thread_name_prefix="reactor")
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._active: dict[UUID, Attempt] = {}
        self._abandoned = 0
        self._leaving = False
        self.is_closed = False
        """Nothing begins any more, also of what a claim brings that was under way."""
        self.is_worn = False
        """There are handlers that do not stop."""
        self._waiters: dict[UUID, Waiter] = {}

    @property
    def room(self) -> int:
        """Places that are free; less than none while jobs wait for one."""
        return self._worker.capacity - len(self._active) - len(self._ready)

    @property
    def is_quiet(self) -> bool:
        """Nothing runs, waits or is to be written. What was given up does not count: it may never end."""
        return len(self._active) == self._abandoned and not self._ready and self._settler.is_idle

    def take(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.held[job.attempt_id] = job.id
            self._ready.append(job)
        self._fill()

    def wait_for(self, job: Job) -> Waiter:
        """The state in which this attempt leaves its job; None: it was stale, or given back."""
        waiter: Waiter = self._loop.create_future()
        self._waiters[job.attempt_id] = waiter
        return waiter

    def drop_ready(self) -> dict[int, UUID]:
        """Forgets what has not begun, so that it can be given back."""
        ready, self._ready = self._ready, deque()
        for job in ready:
            self._forget(job.attempt_id, None)
        return {job.id: job.attempt_id for job in ready}

    def lose(self, attempt_ids: Collection[UUID]) -> None:
        """These are not ours any more: their handlers stop."""
        for attempt_id in attempt_ids:
            attempt = self._active.get(attempt_id)
            if attempt is not None and not attempt.context.is_abandoned:
                attempt.stop(Stop.TAKEN)
        for job in [job for job in self._ready if job.attempt_id in attempt_ids]:
            self._ready.remove(job)
            self._has_stopped(job.id)  # it never began, but the row says that we have it, and its scope
            self._forget(job.attempt_id, None)

    def interrupt(self) -> None:
        for attempt in list(self._active.values()):
            attempt.stop(Stop.SHUTDOWN)

    async def leave(self) -> None:
        """Threads that still run are left to themselves; coroutines that do not want to end get another push."""
        self._executor.shutdown(wait=False)
        self._leaving = True
        left = list(self._active.values())
        self.is_worn = self.is_worn or bool(left)
        for attempt in left:
            attempt.context.is_abandoned = True
            attempt.stop(Stop.SHUTDOWN)
        if left:
            await asyncio.wait([attempt.task for attempt in left if attempt.task], timeout=_LEAVE_SECONDS)

    # One attempt

    def _fill(self) -> None:
        while self._ready and len(self._active) < self._worker.capacity and not self.is_closed:
            self._start(self._ready.popleft())

    def _start(self, job: Job) -> None:
        attempt = Attempt(job, self._registry.get_handler(job.job_type), self._services)
        self._active[job.attempt_id] = attempt
        if attempt.timeout_seconds is None:
            attempt.slot = self._begun.enter(job.attempt_id)
        else:
            blocked = time.monotonic() + attempt.timeout_seconds + _GIVE_UP_SECONDS + _BLOCKED_SECONDS
            attempt.slot = self._begun.enter(job.attempt_id, blocked)
            attempt.timer = self._loop.call_later(attempt.timeout_seconds, self._time_out, attempt)
        attempt.task = self._loop.create_task(self._work(attempt))

    async def _work(self, attempt: Attempt) -> None:
        end: Ending | JobState | End
        began = time.monotonic()
        try:
            end = await attempt.run(self._registry.arounds, self._executor)
        except Exception as error:
            # A bug of ours must not cost more than the attempt.
            log.exception("attempt broke", job_id=attempt.job.id)
            end = Ending(attempt.job.id, attempt.job.attempt_id, Errored(describe(error), 1.0))
        if end is not End.INTERRUPTED:  # it would have taken longer
            self._counts.record_duration(attempt.job.job_type, time.monotonic() - began)
        self._ended(attempt, end)

    def _ended(self, attempt: Attempt, end: Ending | JobState | End) -> None:
        job = attempt.job
        del self._active[job.attempt_id]
        if end is not End.INTERRUPTED:  # else whoever tidies up must know that it had begun
            self._begun.leave(attempt.slot)
        if attempt.timer is not None:
            attempt.timer.cancel()
        if self._leaving:
            return  # that its task has ended does not mean that its thread has
        self._counts.ended += 1
        if attempt.context.is_abandoned:
            self._abandoned -= 1
            self._has_stopped(job.id)
        elif isinstance(end, Ending):
            self._settler.put(end)
        elif isinstance(end, JobState):
            self._counts.count(end)
            self._forget(job.attempt_id, end)
        elif end is End.STALE:
            self._was_stale(job.id, job.attempt_id)
        else:
            self._answer(job.attempt_id, None)  # still held: it is for whoever tidies up to give it back
        self._fill()
        self.on_ended()

    def on_settled(self, ending: Ending, state: JobState | None) -> None:
        """The settler's word on an ending; None: stale."""
        if state is None:
            self._was_stale(ending.job_id, ending.attempt_id)
            return
        self._counts.count(state)
        if isinstance(ending.outcome, Errored | Failed):
            self._counts.failed += 1
            self._counts.retries += state is JobState.PENDING
            log.warning(
                "attempt failed",
                job_id=ending.job_id,
                attempt_id=str(ending.attempt_id),
                state=state.value,
                error=ending.outcome.error.partition("\n")[0],
            )
        elif _log_level.isEnabledFor(logging.DEBUG):
            log.debug("job settled", job_id=ending.job_id, attempt_id=str(ending.attempt_id), state=state.value)
        self._forget(ending.attempt_id, state)

    def _was_stale(self, job_id: int, attempt_id: UUID) -> None:
        self._counts.stale += 1
        log.warning("writeback_stale_attempt", job_id=job_id, attempt_id=str(attempt_id), pod=self._worker.pod)
        self._has_stopped(job_id)
        self._forget(attempt_id, None)

    def _has_stopped(self, job_id: int) -> None:
        """The scope of a job that was taken from us is free now, unless another attempt at it runs here too."""
        if all(other.job.id != job_id for other in self._active.values()):
            self._settler.do(lambda connection: stopped(connection, self._worker.id, [job_id]))

    def _answer(self, attempt_id: UUID, state: JobState | None) -> None:
        if self._waiters:
            waiter = self._waiters.pop(attempt_id, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(state)

    def _forget(self, attempt_id: UUID, state: JobState | None) -> None:
        self.held.pop(attempt_id, None)
        self._answer(attempt_id, state)
        if not self.held:
            self.on_ended()

    # Timeouts

    def _time_out(self, attempt: Attempt) -> None:
        attempt.stop(Stop.TIMEOUT)
        attempt.timer = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up, attempt)

    def _give_up(self, attempt: Attempt) -> None:
        """A thread can't be ended, and a coroutine may not want to: the job goes on without this attempt."""
        job = attempt.job
        log.error(
            "a handler does not stop", job_id=job.id, job_type=job.job_type, timeout_seconds=attempt.timeout_seconds
        )
        self._begun.leave(attempt.slot)
        attempt.slot = self._begun.enter(job.attempt_id)
        attempt.context.is_abandoned = True
        self._abandoned += 1
        self.is_worn = True
        if attempt.stop_because is Stop.TIMEOUT:
            self._counts.failed += 1
            outcome = attempt.timed_out()
            self._settler.do(lambda connection: self._abandon(connection, job, outcome))
        elif attempt.stop_because is Stop.TAKEN:
            self._forget(job.attempt_id, None)
        self.on_worn()

    async def _abandon(self, connection: Connection, job: Job, outcome: Errored | Failed) -> None:
        """Ours until that is written: a stock-taking would give back what we don't know of, and its scope with it."""
        await abandon(connection, job.id, job.attempt_id, outcome)
        self._forget(job.attempt_id, None)
