"""Runs jobs in this process: claims what is due when the bell rings, executes it, has it settled."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from reactor import statements
from reactor.attempt import Attempt, End, Stop
from reactor.begun import Begun
from reactor.claim import claim, claim_one
from reactor.context import Services
from reactor.database import connect, open_pool
from reactor.execute import describe
from reactor.job import Job, JobState
from reactor.lease import Worker, held
from reactor.line import Line
from reactor.listener import Listener
from reactor.log import get_logger
from reactor.outcome import Ending, Errored, Failed
from reactor.registry import Registry
from reactor.settle import abandon, give_back_unbegun, stopped
from reactor.settler import Settler

log = get_logger(__name__)

# A row whose transaction found the bell rung a moment ago may become visible only after we have looked.
_LOOK_AGAIN_SECONDS = (0.01, 0.04, 0.16, 0.64)
# So much work is claimed ahead of the handlers: what an urgent job waits behind, and what another pod can't have.
_AHEAD_SECONDS = 0.05
_MOST_AHEAD = 500
_PROMOTION_PAUSE_SECONDS = 0.1
_PROMOTION_BATCH = 1000
_REPORT_PAUSE_SECONDS = 5.0
_REPORT_AGAIN_SECONDS = 600.0
_GIVE_UP_SECONDS = 2.0
# After that the supervisor takes it that the event loop is blocked, and ends the process.
_BLOCKED_SECONDS = 3.0
_NEVER = float("inf")
_TELLS_ALL = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """How this process works."""

    url: str
    listen_url: str
    poll_seconds: float = 10
    """0: never."""
    stock_seconds: float = 15
    """How often to compare what we run with what the database says we hold."""
    once: bool = False
    """Run what is due, then end."""
    max_jobs: int | None = None


@dataclass
class Counts:
    """What happened since the start, for logs and metrics."""

    claims: int = 0
    wasted_claims: int = 0
    claimed: int = 0
    wakes: int = 0
    polls: int = 0
    missed_wakes: int = 0
    """Polls that found what no notification had told of."""
    stale: int = 0
    ended: int = 0
    failed: int = 0
    """Attempts that ended in an error, or failed for good."""
    states: dict[JobState, int] = field(default_factory=dict)


class Runner:
    def __init__(self, plan: Plan, registry: Registry, worker: Worker, begun: Begun | None = None) -> None:
        self.worker = worker
        self.counts = Counts()
        self.on_worn: Callable[[], None] | None = None
        """Called when a handler does not stop: a process that can be replaced should be."""
        self._plan = plan
        self._registry = registry
        self._begun = begun or Begun(worker.capacity)
        self._line = Line(plan.url, f"reactor claim {worker.pod}")
        self._settle_line = Line(plan.url, f"reactor settle {worker.pod}")
        self._settler = Settler(self._settle_line, self._on_settled)
        self._listener = Listener(
            plan.listen_url,
            f"reactor listen {worker.pod}",
            {"reactor_jobs": self._on_bell, "reactor_cancel": self._on_cancel},
            self._look_now,
        )
        self._executor = ThreadPoolExecutor(worker.capacity, thread_name_prefix="reactor")
        self._services: Services | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ready: deque[Job] = deque()
        self._active: dict[UUID, Attempt] = {}
        self._held: dict[UUID, int] = {}
        """Attempts that are ours, from the claim to the commit of their end, with their jobs."""
        self._busy = 0
        self._abandoned = 0
        """How many of the busy are given up: they keep their places until they end by themselves."""
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._look = True
        self._dry = False
        """The last claim got all there was."""
        self._budget = plan.max_jobs
        self._pace = _Pace()
        self._waiters: dict[UUID, asyncio.Future[JobState | None]] = {}
        self._looks: deque[float] = deque()
        self._next_poll = _NEVER
        self._next_promotion = 0.0
        self._next_stock = _NEVER
        self._promoted_at = 0.0
        self._next_report = 0.0
        self._reported: dict[tuple[str, str], float] = {}

    @property
    def is_listening(self) -> bool:
        return self._listener.is_listening

    def stop(self) -> None:
        """No more claims; what runs ends. Claimed jobs that have not begun go back at once."""
        self._stopping = True
        self._wakeup.set()

    def interrupt(self) -> None:
        """What runs is told to stop as well. It stays held: whoever tidies up gives it back."""
        self.stop()
        for attempt in list(self._active.values()):
            attempt.stop(Stop.SHUTDOWN)

    async def run(self) -> None:
        """Until it is stopped, or has done what it was to do."""
        self._loop = asyncio.get_running_loop()
        pool = await open_pool(self._plan.url, name=f"reactor handlers {self.worker.pod}", size=self.worker.capacity)
        try:
            async with self._registry.resources() as resources:
                self._services = Services(self._settler, pool, resources)
                async with asyncio.TaskGroup() as tasks:
                    helpers = [tasks.create_task(self._settler.run())]
                    if not self._plan.once:
                        helpers.append(tasks.create_task(self._listener.run()))
                    try:
                        await self._turn_after_turn()
                    finally:
                        for helper in helpers:
                            helper.cancel()
        finally:
            self._executor.shutdown(wait=False)
            pool.terminate()
            await self._line.close()
            await self._settle_line.close()

    async def run_job(self, job_id: int) -> JobState | None:
        """Runs this one job now, in the way that every job is run. None: it can't be had, and nothing has changed."""
        async with connect(self._plan.url, name=f"reactor run {self.worker.pod}") as connection:
            job_type = await connection.fetchval("select job_type from reactor.jobs where id = $1", job_id)
            if job_type not in self._registry.job_types:
                log.warning("no handler for this job", job_id=job_id, job_type=job_type)
                return None
            job = await claim_one(connection, self.worker, job_id, self._registry.job_types[job_type])
        if job is None:
            return None
        ended: asyncio.Future[JobState | None] = self._loop.create_future()
        self._waiters[job.attempt_id] = ended
        self._take([job])
        return await ended

    # The loop

    async def _turn_after_turn(self) -> None:
        loop = self._loop
        now = loop.time()
        self._next_poll = now + self._plan.poll_seconds if self._plan.poll_seconds else _NEVER
        self._next_stock = now + self._plan.stock_seconds
        while True:
            now = loop.time()
            if now >= self._next_stock:
                await self._take_stock()
            if self._stopping and await self._is_finished():
                return
            if not self._stopping and self._room() >= self._worthwhile() and self._is_due(now):
                if not await self._turn(now) and self._plan.once and not self._held:
                    return
                continue
            await self._sleep()

    def _is_due(self, now: float) -> bool:
        return self._look or not self._dry or now >= min(self._next_look(), self._next_poll, self._next_promotion)

    def _next_look(self) -> float:
        return self._looks[0] if self._looks else _NEVER

    async def _is_finished(self) -> bool:
        if self._ready:
            await self._give_back_ready()
        return self._busy == self._abandoned and self._settler.is_idle

    async def _sleep(self) -> None:
        """Until something is rung, ended or due. Without room only the stock has to be looked after."""
        due = self._next_stock
        if not self._stopping and self._room() >= self._worthwhile():
            due = min(due, self._next_look(), self._next_poll, self._next_promotion)
        timer = self._loop.call_at(min(due, self._loop.time() + 3600), self._wakeup.set)
        await self._wakeup.wait()
        timer.cancel()
        self._wakeup.clear()

    async def _turn(self, now: float) -> bool:
        """One look at what is due. Tells whether there was anything."""
        rung, self._look = self._look, False
        polled = now >= self._next_poll
        if polled:
            self._next_poll = now + self._plan.poll_seconds
            self.counts.polls += 1
        if rung:
            self._looks = deque(now + pause for pause in _LOOK_AGAIN_SECONDS)
        else:
            while self._looks and self._looks[0] <= now:
                self._looks.popleft()
        expected = rung or bool(self._looks) or not self._dry
        # On a ring the claim comes first, since somebody waits for it.
        promoted = 0 if rung else await self._promote()
        jobs = await self._claim()
        if jobs and polled and not expected:
            self.counts.missed_wakes += 1
            log.warning("a notification was missed", found=len(jobs), missed=self.counts.missed_wakes)
        if rung:
            promoted = await self._promote()
        if polled or (not jobs and not promoted):
            await self._report_unhandled()
        return bool(jobs or promoted)

    async def _claim(self) -> list[Job]:
        limit = self._room()
        jobs, lost = await self._line.insist(lambda connection: claim(connection, self.worker, limit))
        self.counts.claims += 1
        self.counts.wasted_claims += not jobs
        self.counts.claimed += len(jobs)
        self._dry = len(jobs) < limit
        if self._budget is not None:
            self._budget -= len(jobs)
            self._stopping = self._stopping or self._budget <= 0
        if lost:
            # The lost answer may have been a claim that is ours without our knowing.
            self._next_stock = 0.0
        self._pace.mark(self._loop.time(), self.counts.ended)
        self._take(jobs)
        return jobs

    async def _promote(self) -> int:
        """Scheduled jobs that are due become ready. Also sets the alarm for the next one."""
        if self._loop.time() < self._next_promotion:
            return 0
        record, _ = await self._line.insist(
            lambda connection: connection.fetchrow(statements.PROMOTE, _PROMOTION_BATCH)
        )
        assert record is not None
        moved, later = record
        now = self._promoted_at = self._loop.time()
        self._next_promotion = _NEVER if later is None else now + later if moved < _PROMOTION_BATCH else now
        self._look = self._look or moved > 0
        return int(moved)

    async def _take_stock(self) -> None:
        """Stops what the database says is ours no more, and gives back what it says is ours and we don't know of.

        No claim is under way meanwhile, so whatever we hold we know of before we ask.
        """
        self._next_stock = self._loop.time() + self._plan.stock_seconds
        known = set(self._held)
        theirs, _ = await self._line.insist(lambda connection: held(connection, self.worker.id))
        unknown = {job_id: attempt_id for job_id, attempt_id in theirs.items() if attempt_id not in known}
        if unknown:
            log.warning("claims whose answer was lost are given back", jobs=sorted(unknown))
            await self._line.insist(lambda connection: give_back_unbegun(connection, unknown))
        lost = known.difference(theirs.values())
        for attempt_id in lost:
            attempt = self._active.get(attempt_id)
            if attempt is not None and not attempt.is_abandoned and not attempt.is_settling:
                attempt.stop(Stop.TAKEN)
        if any(job.attempt_id in lost for job in self._ready):
            for job in [job for job in self._ready if job.attempt_id in lost]:
                self._ready.remove(job)
                self._forget(job.attempt_id, None)

    async def _give_back_ready(self) -> None:
        ready, self._ready = self._ready, deque()
        unbegun = {job.id: job.attempt_id for job in ready}
        await self._line.insist(lambda connection: give_back_unbegun(connection, unbegun))
        for job in ready:
            self._forget(job.attempt_id, None)

    async def _report_unhandled(self) -> None:
        now = self._loop.time()
        if now < self._next_report:
            return
        self._next_report = now + _REPORT_PAUSE_SECONDS
        records, _ = await self._line.insist(lambda connection: connection.fetch(statements.UNHANDLED, 100))
        for queue, job_type in records:
            if now - self._reported.get((queue, job_type), -_NEVER) >= _REPORT_AGAIN_SECONDS:
                self._reported[queue, job_type] = now
                log.warning("no live pod has a handler for these jobs", job_type=job_type, queue=queue)

    # How much to claim

    def _room(self) -> int:
        room = self.worker.capacity - self._busy - len(self._ready) + self._ahead()
        return room if self._budget is None else min(room, self._budget)

    def _ahead(self) -> int:
        return min(_MOST_AHEAD, int(self._pace.rate(self._loop.time(), self.counts.ended) * _AHEAD_SECONDS))

    def _worthwhile(self) -> int:
        """One free place is worth a claim where jobs take long; where they fly through, many share one."""
        return max(1, self._ahead() // 2)

    # One job

    def _take(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._held[job.attempt_id] = job.id
        self._ready.extend(jobs)
        self._fill()

    def _fill(self) -> None:
        while self._ready and self._busy < self.worker.capacity:
            self._start(self._ready.popleft())

    def _start(self, job: Job) -> None:
        assert self._services is not None
        attempt = Attempt(job, self._registry.get_handler(job.job_type), self._services)
        self._busy += 1
        self._active[job.attempt_id] = attempt
        if attempt.timeout_seconds is None:
            attempt.slot = self._begun.enter(job.attempt_id)
        else:
            last = attempt.timeout_seconds + _GIVE_UP_SECONDS
            attempt.slot = self._begun.enter(job.attempt_id, time.monotonic() + last + _BLOCKED_SECONDS)
            attempt.timer = self._loop.call_later(attempt.timeout_seconds, self._time_out, attempt)
        attempt.task = self._loop.create_task(self._work(attempt))

    async def _work(self, attempt: Attempt) -> None:
        try:
            end = await attempt.run(self._registry.arounds, self._executor)
        except Exception as error:
            # A bug of ours must not cost more than the attempt.
            log.exception("attempt broke", job_id=attempt.job.id)
            end = Ending(attempt.job.id, attempt.job.attempt_id, Errored(describe(error), 1.0))
        self._ended(attempt, end)

    def _ended(self, attempt: Attempt, end: Ending | End) -> None:
        self._begun.leave(attempt.slot)
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._busy -= 1
        self.counts.ended += 1
        del self._active[attempt.job.attempt_id]
        if attempt.is_abandoned:
            self._abandoned -= 1
            self._has_stopped(attempt)
        elif isinstance(end, Ending):
            self._settler.put(end)
        elif end is End.COMMITTED:
            self._count(JobState.COMPLETED)
            self._forget(attempt.job.attempt_id, JobState.COMPLETED)
        elif end is End.STALE:
            self._is_stale(attempt.job.id, attempt.job.attempt_id)
            self._has_stopped(attempt)
        else:
            self._forget(attempt.job.attempt_id, None)
        self._fill()
        if self._stopping or self._plan.once or (not self._dry and self._room() >= self._worthwhile()):
            self._wakeup.set()

    def _on_settled(self, ending: Ending, state: JobState | None) -> None:
        if state is None:
            self._is_stale(ending.job_id, ending.attempt_id)
            self._settler.do(lambda connection: stopped(connection, self.worker.id, [ending.job_id]))
            return
        self._count(state)
        if isinstance(ending.outcome, Errored | Failed):
            self.counts.failed += 1
            log.warning(
                "attempt failed",
                job_id=ending.job_id,
                attempt_id=str(ending.attempt_id),
                state=state.value,
                error=ending.outcome.error.partition("\n")[0],
            )
        elif _TELLS_ALL.isEnabledFor(logging.DEBUG):
            log.debug("job settled", job_id=ending.job_id, attempt_id=str(ending.attempt_id), state=state.value)
        self._forget(ending.attempt_id, state)

    def _is_stale(self, job_id: int, attempt_id: UUID) -> None:
        self.counts.stale += 1
        log.warning("writeback_stale_attempt", job_id=job_id, attempt_id=str(attempt_id), pod=self.worker.pod)
        self._forget(attempt_id, None)

    def _has_stopped(self, attempt: Attempt) -> None:
        """The scope of a job that was taken from us is free now, unless another attempt at it runs here too."""
        job_id = attempt.job.id
        if all(other.job.id != job_id for other in self._active.values()):
            self._settler.do(lambda connection: stopped(connection, self.worker.id, [job_id]))

    def _count(self, state: JobState) -> None:
        self.counts.states[state] = self.counts.states.get(state, 0) + 1

    def _forget(self, attempt_id: UUID, state: JobState | None) -> None:
        self._held.pop(attempt_id, None)
        if self._waiters:
            waiter = self._waiters.pop(attempt_id, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(state)
        if self._stopping or self._plan.once:
            # What has ended may have made others runnable.
            self._look = True
            self._wakeup.set()

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
        attempt.is_abandoned = True
        self._abandoned += 1
        self._held.pop(job.attempt_id, None)
        if attempt.stop_because is Stop.TIMEOUT:
            outcome = attempt.timed_out()
            self._settler.do(lambda connection: abandon(connection, job.id, job.attempt_id, outcome))
            self.counts.failed += 1
        if self.on_worn is not None:
            self.on_worn()

    # What others tell us

    def _on_bell(self, payload: str) -> None:
        self.counts.wakes += 1
        # Perhaps it is a scheduled job; but not every ring is worth a look at the calendar.
        self._next_promotion = min(self._next_promotion, self._promoted_at + _PROMOTION_PAUSE_SECONDS)
        self._look_now()

    def _look_now(self) -> None:
        self._look = True
        self._wakeup.set()

    def _on_cancel(self, payload: str) -> None:
        """Anybody can send this: it only makes us look at what is still ours."""
        if str(self.worker.id) in payload:
            self._next_stock = 0.0
            self._wakeup.set()


class _Pace:
    """How many jobs a second end, over the last tenth of a second or two: jobs that take longer count as none."""

    def __init__(self) -> None:
        self._marks = ((0.0, 0), (0.0, 0))

    def mark(self, now: float, ended: int) -> None:
        if now - self._marks[1][0] >= 0.1:
            self._marks = (self._marks[1], (now, ended))

    def rate(self, now: float, ended: int) -> float:
        since, before = self._marks[0]
        return (ended - before) / max(now - since, 0.02)
