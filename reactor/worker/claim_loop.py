"""Claims and runs jobs, woken by notifications and a poll timer."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import asyncpg

from reactor.counts import Counts
from reactor.database import statements, wakeups
from reactor.database.connection import connect, open_pool
from reactor.database.listener import Listener
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import NEVER, Reason, Wakeups
from reactor.handlers.registry import Registry
from reactor.handlers.stored_log import capture_logging
from reactor.job import Job, JobState
from reactor.lifecycle.claim import Again, claim_once, claim_one, inherit
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.release import release_unstarted
from reactor.log import get_logger
from reactor.worker.claim_ahead import ClaimAhead
from reactor.worker.due_times import ScheduledJobs, Schedules
from reactor.worker.marks import Marks
from reactor.worker.options import WorkerOptions
from reactor.worker.reconcile import Claims, Reconciliation
from reactor.worker.running_attempts import RunningAttempts
from reactor.worker.slots import Slots, used_up
from reactor.worker.unhandled_types import UnhandledTypes

log = get_logger(__name__)


@dataclass(frozen=True)
class Timings:
    recheck_seconds: tuple[float, ...] = (0.01, 0.04, 0.16, 0.64)
    """When to claim again after a notification: see Wakeups."""
    refused_pause_seconds: float = 1.0
    locked_pause_seconds: tuple[float, float] = (0.003, 1.0)
    """How soon to claim again what other transactions have locked: at first, and at most."""
    opening_pause_seconds: tuple[float, float] = (0.005, 0.015)
    """How long to wait at least for the next job that a rate allows: a random time, so that pods do not all claim at
    the same moment, and each claim gets what has become free since the last one."""
    ahead_of_rate_seconds: float = 0.05
    """Claims may be ahead of free slots if a rate allows more within this time."""
    place_pause_seconds: tuple[float, float] = (0.04, 0.2)
    """How long after the end of another worker's job to claim what it made room for, unless that worker has: at
    first, and at most."""
    place_quiet_seconds: float = 0.1
    """An end that follows a notification of another one within 20 ms sends none, and may be committed even later. So
    a claim that began sooner than this after a notification is followed by another."""


class ClaimLoop:
    """One claim at a time; notifications during it trigger another."""

    timings = Timings()

    def __init__(
        self, options: WorkerOptions, registry: Registry, worker: Worker, started: RunningAttempts | None = None
    ) -> None:
        self.worker = worker
        self.counts = Counts()
        self.on_stuck: Callable[[], None] = lambda: None
        """Called when a handler does not stop."""
        self.slots: Slots
        self.claim_ahead: ClaimAhead
        self.reconciliation: Reconciliation
        connection = ReconnectingConnection(options.url, f"reactor claim {worker.pod}", prepares=options.prepares)
        self.schedules = Schedules(connection, longest_pause=options.poll_seconds or NEVER)
        self._scheduled_jobs = ScheduledJobs(connection)
        self._unhandled_types = UnhandledTypes(connection)
        self._claims = Claims(connection, asyncio.Lock())
        self._wakeups = Wakeups(
            wakeups.Timings(self.timings.recheck_seconds, options.poll_seconds),
            not_before=lambda: 0.0 if self.claim_ahead.is_worthwhile() else NEVER,
            due_at=lambda: (
                min(self._scheduled_jobs.next_at, self._retry_at, self._opens_at, self._place_at)
                if self._got_all and not self._has_room
                else 0.0
            ),
        )
        self._listener = Listener(
            options.listen_url,
            f"reactor listen {worker.pod}",
            {
                "reactor_jobs": self._on_jobs,
                "reactor_places": self._on_place_free,
                "reactor_cancel": self._on_cancel,
                "reactor_schedules": self._on_schedules,
            },
            self._on_connected,
        )
        self._options = options
        self._is_lasting = not options.once and not options.inherits
        """It waits for work, and so needs notifications and runs schedules."""
        self._registry = registry
        self._started = started or RunningAttempts(worker.capacity)
        self._owns_started = started is None
        self._opened = asyncio.Event()
        """It has slots, or will never have any."""
        self._has_slots = False
        self._is_stopping = False
        self._is_waiting = False
        """For the next wake-up."""
        self._got_all = False
        """The last claim got all jobs that were ready."""
        self._marks = Marks()
        self._retry_at = NEVER
        """The last claim left jobs because other transactions had locked something."""
        self._retry_pause = self.timings.locked_pause_seconds[0]
        self._opens_at = NEVER
        """When a limit allows more of the jobs that the last claim left."""
        self._is_limited = False
        """Limits may hold back jobs that the last claim, or one that is under way, could have got otherwise."""
        self._has_room = False
        """Jobs of ours have ended since the last claim began, and may have made room for others."""
        self._place_at = NEVER
        """When to claim what the end of another worker's job made room for."""
        self._place_heard_at = -NEVER
        """When an end was notified last."""
        self._place_pause = self.timings.place_pause_seconds[0]
        self._waits_for_slot = False
        """The last claim left jobs of a queue that has all slots that it may have: the end of a job allows another."""

    @property
    def is_listening(self) -> bool:
        return self._listener.is_listening

    @property
    def is_at_rest(self) -> bool:
        """It claims no more before something happens: a notification, a poll, a due time."""
        return self._is_waiting and self._got_all and self._retry_at == NEVER and self._wakeups.is_quiet

    @property
    def is_stuck(self) -> bool:
        """Some handlers do not stop."""
        return self.slots.is_stuck

    def summary(self) -> dict[str, Any]:
        """Counts and the listener's state, for the heartbeat to store."""
        return self.counts.summary() | {
            "is_listening": self._listener.is_listening if self._is_lasting else None,
            "heard_at": self._listener.heard_at,
            "reconnects": self._listener.reconnects,
        }

    def stop(self) -> None:
        """Claims no more. Running jobs end; claimed jobs that have not started are released at once."""
        self._is_stopping = True
        if self._has_slots:
            self.slots.is_closed = True
        self.schedules.stop()
        self._wakeups.stop()

    def interrupt(self) -> None:
        """Stops running jobs too. They stay claimed: recovery releases them."""
        self.stop()
        if self._has_slots:
            self.slots.interrupt()

    async def run_job(self, job_id: int) -> JobState | None:
        """Runs this one job now, in the way that every job is run. None: it can't be claimed; nothing has changed."""
        await self._opened.wait()
        if not self._has_slots:
            return None
        async with connect(self._options.url, name=f"reactor run {self.worker.pod}", prepares=False) as connection:
            job_type = await connection.fetchval(statements.FIND_JOB_TYPE, job_id)
            if job_type not in self._registry.job_types:
                log.warning("no handler for this job", job_id=job_id, job_type=job_type)
                return None
            async with self._claims.lock:
                job = await claim_one(connection, self.worker, job_id, self._registry.job_types[job_type])
                if job is None:
                    return None
                if self.slots.is_closed:  # the loop that would release it may have ended
                    await release_unstarted(connection, {job.id: job.attempt_id})
                    return None
                ended = self.slots.wait_for(job)
                self.slots.take([job])
        return await ended

    async def run(self) -> None:
        """Until it is stopped, or has done what its options say."""
        try:
            await self._run()
        finally:
            self._opened.set()

    # Start and end

    async def _run(self) -> None:
        options, pod = self._options, self.worker.pod
        pool = await open_pool(
            options.url, name=f"reactor handlers {pod}", size=self.worker.capacity, prepares=options.prepares
        )
        settling = ReconnectingConnection(options.url, f"reactor settle {pod}", prepares=options.prepares)
        try:
            await settling.open()
            async with self._registry.resources() as resources:
                logs = self._options.logs
                self._open(
                    Slots(self.worker, self._registry, self._started, self.counts, settling, pool, resources, logs)
                )
                if logs.captures_logging or self._registry.captures_logging:
                    capture_logging()
                async with asyncio.TaskGroup() as tasks:
                    helpers = [tasks.create_task(helper) for helper in self._helpers()]
                    try:
                        await self._claim_until_done()
                    finally:
                        await self.slots.leave()
                        for helper in helpers:
                            helper.cancel()
                if self._owns_started and not self.slots.is_stuck:
                    self._started.close()
        finally:
            pool.terminate()
            await self._claims.connection.close()
            await settling.close()

    def _open(self, slots: Slots) -> None:
        self.slots = slots
        self.slots.is_closed = self._is_stopping
        self.slots.on_ended = self._on_ended
        self.slots.on_settled = self._on_settled
        self.slots.on_stuck = lambda: self.on_stuck()
        self.slots.writers.on_idle = self._on_written
        self.claim_ahead = ClaimAhead(self.slots, self.counts, self._options.max_jobs)
        self.reconciliation = Reconciliation(self._claims, self.worker, self.slots, self._options.reconcile_seconds)
        self._has_slots = True
        self._opened.set()

    def _helpers(self) -> list[Coroutine[Any, Any, None]]:
        helpers = [self.slots.writers.run(), self.reconciliation.run()]
        if self._is_lasting:
            helpers += [self._listener.run(), self.schedules.run()]
        return helpers

    async def _claim_until_done(self) -> None:
        if self._options.inherits:
            await self._inherit()
            self._wakeups.stop()
        self._wakeups.notify()  # for what is ready already
        while True:
            try:
                if await self._iterate():
                    return
            except asyncpg.PostgresError as error:
                # Whatever the server refused, a pod that gave up would run nothing at all.
                log.error("claim loop error", error=str(error), sqlstate=error.sqlstate)
                self._scheduled_jobs.check_now()
                self._wakeups.notify()
                await asyncio.sleep(self.timings.refused_pause_seconds)

    async def _finish(self) -> None:
        """Waits until nothing runs and all is written."""
        while True:
            if self._is_stopping:
                await self._release_unstarted()
            if self.slots.is_quiet:
                return
            await self._wakeups.changed()

    async def _release_unstarted(self) -> None:
        async with self._claims.lock:
            if unstarted := self.slots.drop_ready():
                await self._claims.connection.retry(lambda c: release_unstarted(c, unstarted))

    # From a notification to a claim

    def _on_jobs(self, payload: str) -> None:
        self.counts.wakes += 1
        self._scheduled_jobs.notify()
        self._wakeups.notify()

    async def _iterate(self) -> bool:
        """Returns whether that was the last iteration."""
        self._is_waiting = True
        reason = await self._wakeups.next()
        self._is_waiting = False
        if reason is Reason.STOPPED:
            await self._finish()
            return True
        was_quiet = self.slots.is_quiet  # otherwise a job that ended meanwhile may have made others ready
        found = await self._promote_and_claim(reason)
        return self._options.once and was_quiet and not found

    async def _promote_and_claim(self, reason: Reason) -> bool:
        """Returns whether there was anything to do."""
        is_expected = bool(reason & (Reason.NOTIFIED | Reason.RECHECK)) or not self._got_all
        is_expected = is_expected or self._wakeups.is_rechecking
        is_last_recheck = Reason.RECHECK in reason and not self._wakeups.is_rechecking
        if Reason.POLLED in reason:
            self.counts.polls += 1
        if Reason.POLLED in reason or is_last_recheck:
            self._scheduled_jobs.check_now()  # a scheduled job may have been missed, or become visible late
        if Reason.NOTIFIED in reason:
            jobs = await self._claim()  # first, since a client may be waiting for it
            promoted = await self._scheduled_jobs.promote()
        else:
            promoted = await self._scheduled_jobs.promote()
            jobs = await self._claim()
            if jobs and Reason.POLLED in reason and not is_expected and not promoted:
                self.counts.missed_wakes += 1
                log.warning("a notification was missed", found=len(jobs), missed=self.counts.missed_wakes)
        if promoted:
            self._wakeups.notify()
        if Reason.POLLED in reason or not (jobs or promoted):
            await self._unhandled_types.report(asyncio.get_running_loop().time())
        return bool(jobs or promoted)

    async def _claim(self) -> list[Job]:
        async with self._claims.lock:
            limit = self.claim_ahead.limit()
            if limit < 1 or self._wakeups.is_stopped:  # `run_job` took the last slot while this waited for the lock
                self._got_all = False
                return []
            loop = asyncio.get_running_loop()
            started = loop.time()
            marks = self._marks.next(started)
            free = self.slots.free_of_queues()
            # Before the claim: an end that it does not see causes another one.
            is_for_others = self._place_at <= started
            self._place_at = NEVER if is_for_others else self._place_at
            self._is_limited, self._opens_at, self._has_room, self._waits_for_slot = True, NEVER, False, False
            try:
                (jobs, again, opens_in), maybe_done = await self._claims.connection.retry(
                    lambda c: claim_once(c, self.worker, limit, marks, free)
                )
            except asyncpg.UniqueViolationError:
                jobs, again, opens_in, maybe_done = [], Again.LATER, None, False  # another pod was faster
            self.slots.take(jobs)
        ended = loop.time()
        # The way to the server and back is not the server's.
        took = ended - started - self._claims.connection.round_trip_seconds
        self._marks.claimed(jobs, limit=limit, used=marks is not None, took_seconds=took, now=ended)
        self._got_all = len(jobs) < limit and again is not Again.NOW and marks is None
        self._note_locked(again is Again.LATER)
        self._note_limited(again, opens_in, started)
        if is_for_others:
            first, longest = self.timings.place_pause_seconds
            self._place_pause = max(self._place_pause / 2, first) if jobs else min(2 * self._place_pause, longest)
        self._note_slots(jobs, free)
        self.counts.claims += 1
        self.counts.wasted_claims += not jobs
        self.counts.claimed += len(jobs)
        self.claim_ahead.claimed(len(jobs), ended - started)
        if self.claim_ahead.is_used_up:
            self._wakeups.stop()
        if maybe_done:
            self.reconciliation.notify()  # a claim whose answer was lost may be ours without our knowing
        return jobs

    def _note_locked(self, is_locked: bool) -> None:
        first, longest = self.timings.locked_pause_seconds
        if is_locked:
            self._retry_at = asyncio.get_running_loop().time() + self._retry_pause * random.uniform(0.5, 1.5)
            self._retry_pause = min(2 * self._retry_pause, longest)
        else:
            self._retry_at, self._retry_pause = NEVER, first

    def _note_limited(self, again: Again | None, opens_in: float | None, started: float) -> None:
        self._is_limited = again in (Again.LIMITED, Again.LATER)
        if again is not Again.LATER:  # perhaps the lock of a limit, perhaps something else
            # Not by a rate that soon allows more: what is claimed ahead of that takes no place from another job.
            opens_soon = opens_in is not None and opens_in < self.timings.ahead_of_rate_seconds
            self.claim_ahead.is_limited = self._is_limited and not opens_soon
        if not self._is_limited:
            self._has_room, self._place_at = False, NEVER
        elif started - self._place_heard_at < self.timings.place_quiet_seconds:
            self._plan_place(self.timings.place_pause_seconds[1])
        if opens_in is not None:
            pause = max(opens_in, random.uniform(*self.timings.opening_pause_seconds))
            self._opens_at = min(self._opens_at, asyncio.get_running_loop().time() + pause)

    def _plan_place(self, pause: float) -> None:
        """After half to one and a half of the pause, unless that is planned already."""
        now = asyncio.get_running_loop().time()
        if self._place_at > now + 1.5 * pause:
            self._place_at = now + pause * random.uniform(0.5, 1.5)

    def _note_slots(self, jobs: list[Job], free: dict[str, int]) -> None:
        """`free`: the slots that the claim could use."""
        queues = used_up(jobs, free)
        if queues:
            now_free = self.slots.free_of_queues()
            self._waits_for_slot = all(now_free[queue] <= 0 for queue in queues)
            if not self._waits_for_slot:  # a job has ended meanwhile
                self._opens_at = 0.0

    async def _inherit(self) -> None:
        async with self._claims.lock:
            jobs, _ = await self._claims.connection.retry(lambda c: inherit(c, self.worker))
            self.slots.take(jobs)

    # Other events

    def _on_connected(self) -> None:
        """Notifications sent before this were not received."""
        self._scheduled_jobs.check_now()
        self.schedules.notify()
        self._wakeups.notify()

    def _on_schedules(self, payload: str) -> None:
        self.schedules.notify()

    def _on_cancel(self, payload: str) -> None:
        """Any database user can send this: it only makes us compare what is still ours."""
        if str(self.worker.id) in payload:
            self.reconciliation.notify()

    def _on_written(self) -> None:
        if self._options.once:
            self._wakeups.notify()  # without a listener: what was written may have made other jobs ready
        elif self._wakeups.is_stopped:
            self._wakeups.check()  # perhaps that was the last

    def _on_settled(self) -> None:
        if self._is_lasting and not self._listener.is_listening:
            self._wakeups.notify()  # the end may have freed a scope or met a dependency, of which we hear nothing
        if self._is_limited:
            self._has_room = True
            self._wakeups.check()

    def _on_place_free(self, payload: str) -> None:
        """A job of some worker has ended that a limit counted. That worker claims at once; we do in case that it does
        not: it may have died."""
        self._place_heard_at = asyncio.get_running_loop().time()
        if self._is_limited:
            self._plan_place(self._place_pause)
            self._wakeups.check()

    def _on_ended(self) -> None:
        if self._options.once:
            self._wakeups.notify()  # the job's own transaction may have made other jobs ready
        elif self._waits_for_slot:
            self._waits_for_slot, self._opens_at = False, 0.0
            self._wakeups.check()
        elif self._wakeups.is_stopped or self.claim_ahead.is_worthwhile_again():
            self._wakeups.check()
