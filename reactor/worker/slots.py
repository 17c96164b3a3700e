"""Runs claimed jobs, up to a number at a time, each until its end is settled."""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from reactor.counts import Counts
from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.error_text import describe
from reactor.handlers.attempt import CLOSING, Stop
from reactor.handlers.registry import Registry
from reactor.handlers.services import Services
from reactor.handlers.transaction import Pool
from reactor.job import Job, JobState
from reactor.job_log import JobLog, LogOptions
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import abandon
from reactor.lifecycle.writers import Writers
from reactor.log import get_logger
from reactor.outcome import Ending, Errored, Failed, Outcome, Released
from reactor.worker.execute import End, Execution
from reactor.worker.running_attempts import RunningAttempts

log = get_logger(__name__)
_log_level = logging.getLogger(__name__)

_INTERRUPTED = End.INTERRUPTED  # looked up for every job, and slow as the member of an enum
Waiter: TypeAlias = "asyncio.Future[JobState | None]"


@dataclass(frozen=True)
class Timings:
    give_up_seconds: float = 2.0
    """From a handler's timeout until the job continues without it."""
    blocked_seconds: float = 3.0
    """After that the supervisor considers the event loop blocked, and ends the process."""
    leave_seconds: float = 0.2
    """For tasks to end when the process does."""


def used_up(jobs: Iterable[Job], free: Mapping[str, int]) -> list[str]:
    """Queues of which a claim has as many jobs as it could use slots: it may have left others."""
    taken = Counter(job.queue for job in jobs)
    return [queue for queue, slots in free.items() if taken[queue] >= slots]


class Slots:
    timings = Timings()

    def __init__(
        self,
        worker: Worker,
        registry: Registry,
        running: RunningAttempts,
        counts: Counts,
        connection: ReconnectingConnection,
        pool: Pool,
        resources: Mapping[str, Any],
        logs: LogOptions | None = None,
    ) -> None:
        """`connection` is for the writers; handlers use the pool."""
        self.on_ended: Callable[[], None] = lambda: None
        """Called whenever a slot is free, an attempt's end is settled, or its handler is given up."""
        self.on_settled: Callable[[], None] = lambda: None
        """Called after the commit of an attempt's end."""
        self.on_stuck: Callable[[], None] = lambda: None
        """Called when a handler does not stop: a process that can be replaced should be."""
        self.held: dict[UUID, int] = {}
        """Attempts that are ours, from the claim to the commit of their end, with their entries among the running ones
        (-1: not started)."""
        self.writers = Writers(connection, self._on_settled, counts.batches, logs)
        self.writers.steps.on_stale = lambda attempt_id: self.lose([attempt_id])
        self._worker = worker
        self._registry = registry
        self._running = running
        self._counts = counts
        self._executor = ThreadPoolExecutor(worker.capacity, thread_name_prefix="reactor")
        captures = self.writers.logs.options.captures_logging
        self._services = Services(self.writers, pool, resources, registry.arounds, self._executor, captures)
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Job] = deque()
        self._active: dict[UUID, Execution] = {}
        self._given_up = 0
        self._leaving = False
        self.is_closed = False
        """Nothing starts any more, including what a claim that is under way brings."""
        self.is_stuck = False
        """There are handlers that do not stop."""
        self._waiters: dict[UUID, Waiter] = {}

    @property
    def free(self) -> int:
        """Slots that are free; negative while jobs wait for one. None is, while too many ends wait for their commit."""
        return min(self._worker.capacity - len(self._active), self._running.free) - len(self._ready)

    def free_of_queues(self) -> dict[str, int]:
        """Of queues that may not take all slots: how many more jobs they may have."""
        if not self._worker.slots:
            return {}
        taken = Counter(execution.job.queue for execution in self._active.values())
        taken.update(job.queue for job in self._ready)
        return {queue: slots - taken[queue] for queue, slots in self._worker.slots.items()}

    @property
    def waiting(self) -> int:
        """Jobs that are claimed and wait for a slot."""
        return len(self._ready)

    @property
    def is_quiet(self) -> bool:
        """Nothing runs, waits or is to be written. Handlers that were given up don't count: they may never end."""
        return len(self._active) == self._given_up and not self._ready and self.writers.is_idle

    # One attempt, from its claim to the commit of its end

    def take(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.held[job.attempt_id] = -1
            self._ready.append(job)
        self._fill()

    def _fill(self) -> None:
        while self._ready and len(self._active) < self._worker.capacity and self._running.free and not self.is_closed:
            self._start(self._ready.popleft())

    def _start(self, job: Job) -> None:
        execution = Execution(job, self._registry.get_handler(job.job_type), self._services)
        self._active[job.attempt_id] = execution
        if execution.timeout_seconds is None:
            execution.entry = self._running.enter(job.attempt_id, job.id)
        else:
            margin = self.timings.give_up_seconds + self.timings.blocked_seconds
            deadline = time.monotonic() + execution.timeout_seconds + margin
            execution.entry = self._running.enter(job.attempt_id, job.id, deadline)
            execution.timer = self._loop.call_later(execution.timeout_seconds, self._time_out, execution)
        self.held[job.attempt_id] = execution.entry
        execution.task = self._loop.create_task(self._run(execution))

    async def _run(self, execution: Execution) -> None:
        end: Ending | JobState | End
        started = time.monotonic()
        try:
            end = await execution.run()
        except Exception as error:
            # A bug of ours must not cost more than the attempt.
            log.exception("internal error in attempt", job_id=execution.job.id)
            job, outcome = execution.job, Errored(describe(error), 1.0)
            end = Ending(job.id, job.attempt_id, outcome, log=execution.attempt.job_log)
        if end is not _INTERRUPTED:  # it would have taken longer
            self._counts.record_duration(execution.job.job_type, time.monotonic() - started)
        self._on_end(execution, end)

    def _on_end(self, execution: Execution, end: Ending | JobState | End) -> None:
        job = execution.job
        del self._active[job.attempt_id]
        if execution.timer is not None:
            execution.timer.cancel()
        if self._leaving:
            # The end of its task does not mean that its thread has ended, and its entry may be another worker's by now.
            return
        if end is not _INTERRUPTED:
            self._running.has_ended(execution.entry)
        self._counts.ended += 1
        if execution.attempt.job_log is not None:
            self._end_log(execution.attempt.job_log, end)
        if execution.is_given_up:
            self._given_up -= 1
            if job.attempt_id not in self.held:
                self._running.leave(execution.entry)
            self._has_stopped(job.id)
        elif isinstance(end, Ending):
            self.writers.endings.put(end)
        elif end is _INTERRUPTED:
            self._answer(job.attempt_id, None)  # still held: released with the worker's other claims
        else:
            self._on_settled(job.id, job.attempt_id, end if isinstance(end, JobState) else None)
        self._fill()
        self.on_ended()

    def _end_log(self, job_log: JobLog, end: Ending | JobState | End) -> None:
        if end is _INTERRUPTED:
            self.writers.logs.put_last(job_log)
            return
        self.writers.logs.forget(job_log)
        if not isinstance(end, Ending):
            job_log.close()

    def _on_settled(
        self, job_id: int, attempt_id: UUID, state: JobState | None, outcome: Outcome | None = None
    ) -> None:
        """`state` None: the attempt was stale. `outcome` None: its own transaction has written it."""
        if state is None:
            self._counts.stale += 1
            log.warning("writeback_stale_attempt", job_id=job_id, attempt_id=str(attempt_id), pod=self._worker.pod)
            self._has_stopped(job_id)
        else:
            self._counts.count(state)
            if isinstance(outcome, Errored | Failed):
                self._counts.failed += 1
                self._counts.retries += state is JobState.PENDING
                error = outcome.error.partition("\n")[0]
                log.warning("attempt failed", job_id=job_id, attempt_id=str(attempt_id), state=state.value, error=error)
            elif isinstance(outcome, Released):
                self._counts.failed += state is JobState.FAILED
                error = outcome.error.partition("\n")[0]
                log.warning(
                    "attempt released", job_id=job_id, attempt_id=str(attempt_id), state=state.value, error=error
                )
            elif outcome is not None and _log_level.isEnabledFor(logging.DEBUG):
                log.debug("job settled", job_id=job_id, attempt_id=str(attempt_id), state=state.value)
        self._forget(attempt_id, state)

    def _forget(self, attempt_id: UUID, state: JobState | None) -> None:
        entry = self.held.pop(attempt_id, -1)
        was_full = not self._running.free
        if entry >= 0 and attempt_id not in self._active:  # else its handler does not stop: see `_on_end`
            self._running.leave(entry)
        self._answer(attempt_id, state)
        self.on_settled()
        if was_full:
            self._fill()
        if was_full or not self.held:
            self.on_ended()

    def _has_stopped(self, job_id: int) -> None:
        """The scope of a job that was taken from us is free now, unless another attempt at it runs here too."""
        if all(other.job.id != job_id for other in self._active.values()):
            self.writers.release_stopped(self._worker.id, job_id)

    def _answer(self, attempt_id: UUID, state: JobState | None) -> None:
        if self._waiters:
            waiter = self._waiters.pop(attempt_id, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(state)

    # Timeouts

    def _time_out(self, execution: Execution) -> None:
        execution.stop(Stop.TIMEOUT)
        if execution.attempt.phase is CLOSING:
            # Its handler has stopped in time, and its end waits for the database, for however long.
            self._forget_deadline(execution)
            return
        execution.timer = self._loop.call_later(self.timings.give_up_seconds, self._give_up, execution)

    def _give_up(self, execution: Execution) -> None:
        """A thread can't be ended, and a coroutine may not want to: the job continues without this attempt."""
        job = execution.job
        log.error(
            "a handler does not stop", job_id=job.id, job_type=job.job_type, timeout_seconds=execution.timeout_seconds
        )
        self._forget_deadline(execution)
        execution.attempt.abandon()
        execution.is_given_up = True
        self._given_up += 1
        self.is_stuck = True
        stop_because = execution.attempt.stop_because
        if stop_because is Stop.TIMEOUT:
            if execution.attempt.job_log is not None:
                self.writers.logs.put_last(execution.attempt.job_log)
            self._counts.failed += 1
            outcome = execution.timed_out()
            self.writers.do(lambda connection: self._abandon(connection, job, outcome))
        elif stop_because is Stop.TAKEN:
            self._forget(job.attempt_id, None)
        self.on_ended()  # a worker that stops does not wait for it any more
        self.on_stuck()

    def _forget_deadline(self, execution: Execution) -> None:
        """Otherwise the supervisor would take the event loop for blocked."""
        self._running.clear_deadline(execution.entry)

    async def _abandon(self, connection: Connection, job: Job, outcome: Errored | Failed) -> None:
        """Ours until that is written: a reconciliation would release what we don't know of, and its scope with it."""
        await abandon(connection, job.id, job.attempt_id, outcome)
        self._forget(job.attempt_id, None)

    # What the claim loop asks for

    def wait_for(self, job: Job) -> Waiter:
        """The state in which this attempt leaves its job; None: it was stale, or released."""
        waiter: Waiter = self._loop.create_future()
        self._waiters[job.attempt_id] = waiter
        return waiter

    def drop_ready(self) -> dict[int, UUID]:
        """Forgets what has not started, so that it can be released."""
        ready, self._ready = self._ready, deque()
        for job in ready:
            self._forget(job.attempt_id, None)
        return {job.id: job.attempt_id for job in ready}

    def lose(self, attempt_ids: Collection[UUID]) -> None:
        """These are not ours any more: their handlers stop."""
        for attempt_id in attempt_ids:
            execution = self._active.get(attempt_id)
            if execution is not None and not execution.is_given_up:
                execution.stop(Stop.TAKEN)
        for job in [job for job in self._ready if job.attempt_id in attempt_ids]:
            self._ready.remove(job)
            self._has_stopped(job.id)  # it never started, but the row says that we have it, and its scope
            self._forget(job.attempt_id, None)

    def interrupt(self) -> None:
        for execution in list(self._active.values()):
            execution.stop(Stop.SHUTDOWN)

    async def leave(self) -> None:
        """Leaves threads that still run to themselves, and cancels coroutines that have not ended once more."""
        self._executor.shutdown(wait=False)
        self._leaving = True
        left = list(self._active.values())
        self.is_stuck = self.is_stuck or bool(left)
        for execution in left:
            execution.attempt.abandon()
            execution.stop(Stop.SHUTDOWN)
        if left:
            await asyncio.wait(
                [execution.task for execution in left if execution.task], timeout=self.timings.leave_seconds
            )
