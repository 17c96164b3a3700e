"""Runs jobs in this process: looks for them when the bell rings, claims as many as there is room for."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from reactor.counts import Counts
from reactor.database.connection import connect, open_pool
from reactor.database.listener import Listener
from reactor.database.reconnecting import ReconnectingConnection
from reactor.handlers.context import Services
from reactor.handlers.registry import Registry
from reactor.job import Job, JobState
from reactor.lifecycle.batch_writer import Settler
from reactor.lifecycle.claim import claim, claim_one, inherit
from reactor.lifecycle.lease import Worker, held
from reactor.lifecycle.release import release_unstarted
from reactor.log import get_logger
from reactor.outcome import Ending
from reactor.worker.claim_ahead import Pace
from reactor.worker.due_times import NEVER, Calendar
from reactor.worker.running_attempts import Begun
from reactor.worker.slots import Crew
from reactor.worker.unhandled_types import Unhandled

log = get_logger(__name__)

# A row whose transaction found the bell rung a moment ago may become visible only after we have looked.
_LOOK_AGAIN_SECONDS = (0.01, 0.04, 0.16, 0.64)
_FAILED_PAUSE_SECONDS = 1.0


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
    prepares: bool = True
    """False behind a pooler that gives each transaction another session."""
    inherits: bool = False
    """Run what was handed over to this worker, then end; claim nothing."""


class Runner:
    """One claim at a time; what rings meanwhile causes one more. Everything else that needs the claim's connection, the
    calendar of scheduled jobs and the stock-taking, takes its turn between claims."""

    def __init__(self, plan: Plan, registry: Registry, worker: Worker, begun: Begun | None = None) -> None:
        self.worker = worker
        self.counts = Counts()
        self.on_worn: Callable[[], None] = lambda: None
        self._plan = plan
        self._registry = registry
        self._begun = begun or Begun(worker.capacity)
        self._is_begun_ours = begun is None
        self._line = ReconnectingConnection(plan.url, f"reactor claim {worker.pod}", prepares=plan.prepares)
        self._listener = Listener(
            plan.listen_url,
            f"reactor listen {worker.pod}",
            {
                "reactor_jobs": self._on_bell,
                "reactor_cancel": self._on_cancel,
                "reactor_schedules": self._on_schedules,
            },
            self._on_connected,
        )
        self._crew: Crew
        self._has_crew = False
        self._loop: asyncio.AbstractEventLoop
        self._pace = Pace()
        self._wakeup = asyncio.Event()
        self._opened = asyncio.Event()
        """It has a crew, or will never have one."""
        self._claiming_one = asyncio.Lock()
        """No stock is taken between the claim of a single job and our knowing of it: it would be given back."""
        self._claims = not plan.inherits
        self._stopping = False
        self._budget = plan.max_jobs
        self._look = True
        self._dry = False
        """The last claim got all there was."""
        self._is_cramped = False
        """It sleeps for want of room, whatever else is due."""
        self._enough = 1
        """Room to be waited for then: worked out when the waiting begins, and not at the end of each job."""
        self._looks: deque[float] = deque()
        self._next_poll = NEVER
        self._next_stock = NEVER
        self._calendar = Calendar(
            self._line,
            longest_pause=plan.poll_seconds or NEVER,
            has_schedules=not plan.once and not plan.inherits,
        )
        self._unhandled = Unhandled(self._line)

    @property
    def is_listening(self) -> bool:
        return self._listener.is_listening

    def summary(self) -> dict[str, Any]:
        """What it has done and whether it hears, to be told and stored."""
        has_listener = not self._plan.once and not self._plan.inherits
        return self.counts.summary() | {
            "is_listening": self._listener.is_listening if has_listener else None,
            "heard_at": self._listener.heard_at,
            "reconnects": self._listener.reconnects,
        }

    @property
    def is_worn(self) -> bool:
        """There are handlers in it that do not stop."""
        return self._crew.is_worn

    def stop(self) -> None:
        """No more claims; what runs ends. Claimed jobs that have not begun go back at once."""
        self._claims = False
        self._stopping = True
        if self._has_crew:
            self._crew.is_closed = True
        self._wakeup.set()

    def interrupt(self) -> None:
        """What runs is told to stop as well. It stays held: whoever tidies up gives it back."""
        self.stop()
        if self._has_crew:
            self._crew.interrupt()

    async def run(self) -> None:
        """Until it is stopped, or has done what it was to do."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._run()
        finally:
            self._opened.set()

    async def _run(self) -> None:
        pool = await open_pool(
            self._plan.url,
            name=f"reactor handlers {self.worker.pod}",
            size=self.worker.capacity,
            prepares=self._plan.prepares,
        )
        line = ReconnectingConnection(self._plan.url, f"reactor settle {self.worker.pod}", prepares=self._plan.prepares)
        try:
            async with self._registry.resources() as resources:
                settler = Settler(line, self._on_settled, self._on_written, self.counts.batches)
                services = Services(settler, pool, resources)
                self._crew = Crew(self.worker, self._registry, self._begun, self.counts, services)
                self._crew.is_closed = self._stopping
                self._has_crew = True
                self._opened.set()
                self._crew.on_ended = self._on_ended
                self._crew.on_worn = lambda: self.on_worn()
                async with asyncio.TaskGroup() as tasks:
                    helpers = [tasks.create_task(settler.run())]
                    if not self._plan.once and not self._plan.inherits:
                        helpers.append(tasks.create_task(self._listener.run()))
                    try:
                        await self._turn_after_turn()
                    finally:
                        await self._crew.leave()
                        for helper in helpers:
                            helper.cancel()
                if self._is_begun_ours and not self._crew.is_worn:
                    self._begun.close()
        finally:
            pool.terminate()
            await self._line.close()
            await line.close()

    async def run_job(self, job_id: int) -> JobState | None:
        """Runs this one job now, in the way that every job is run. None: it can't be had, and nothing has changed."""
        await self._opened.wait()
        if not self._has_crew:
            return None
        async with connect(self._plan.url, name=f"reactor run {self.worker.pod}", prepares=False) as connection:
            job_type = await connection.fetchval("select job_type from reactor.jobs where id = $1", job_id)
            if job_type not in self._registry.job_types:
                log.warning("no handler for this job", job_id=job_id, job_type=job_type)
                return None
            async with self._claiming_one:
                job = await claim_one(connection, self.worker, job_id, self._registry.job_types[job_type])
                if job is None:
                    return None
                if self._crew.is_closed:  # nobody may be there any more to give it back
                    await release_unstarted(connection, {job.id: job.attempt_id})
                    return None
                ended = self._crew.wait_for(job)
                self._crew.take([job])
        return await ended

    async def _turn_after_turn(self) -> None:
        now = self._loop.time()
        self._next_poll = now + self._plan.poll_seconds if self._plan.poll_seconds else NEVER
        self._next_stock = now + self._plan.stock_seconds
        if self._plan.inherits:
            jobs, _ = await self._line.retry(lambda connection: inherit(connection, self.worker))
            self._crew.take(jobs)
        while True:
            try:
                if await self._step(self._loop.time()):
                    return
            except asyncpg.PostgresError as error:
                # Whatever it is, a pod that gives up over it helps nobody.
                log.error("turn failed", error=str(error), sqlstate=error.sqlstate)
                self._look = True
                self._calendar.promote_now()
                await asyncio.sleep(_FAILED_PAUSE_SECONDS)

    async def _step(self, now: float) -> bool:
        """Tells whether that was the last."""
        if now >= self._next_stock:
            await self._take_stock()
        if now >= self._calendar.next_tick and not self._stopping:
            await self._calendar.tick()
        if not self._claims and await self._is_finished():
            return True
        if self._claims and self._has_room() and self._is_due(now):
            was_quiet = self._crew.is_quiet  # else something may have ended, and made others runnable, while we looked
            return not await self._turn(now) and was_quiet and self._plan.once
        await self._sleep()
        return False

    async def _is_finished(self) -> bool:
        if self._stopping and (unbegun := self._crew.drop_ready()):
            await self._line.retry(lambda connection: release_unstarted(connection, unbegun))
        return self._crew.is_quiet

    async def _sleep(self) -> None:
        """Until something is rung, ended or due. Without room only the stock and the schedules have to be looked
        after."""
        due = self._next_stock if self._stopping else min(self._next_stock, self._calendar.next_tick)
        self._enough = self._room_worthwhile()
        self._is_cramped = self._crew.room < self._enough
        if self._claims and not self._is_cramped:
            due = min(due, self._next_look)
        timer = self._loop.call_at(min(due, self._loop.time() + 3600), self._wakeup.set)
        await self._wakeup.wait()
        timer.cancel()
        self._wakeup.clear()

    def _is_due(self, now: float) -> bool:
        return self._look or not self._dry or now >= self._next_look

    @property
    def _next_look(self) -> float:
        again = self._looks[0] if self._looks else NEVER
        return min(again, self._next_poll, self._calendar.next_promotion)

    # One look

    async def _turn(self, now: float) -> bool:
        """One look at what is due. Tells whether there was anything."""
        rung, self._look = self._look, False
        polled = now >= self._next_poll
        if polled:
            self._next_poll = now + self._plan.poll_seconds
            self._calendar.promote_now()
            self.counts.polls += 1
        if rung:
            self._looks = deque(now + pause for pause in _LOOK_AGAIN_SECONDS)
        else:
            while self._looks and self._looks[0] <= now:
                self._looks.popleft()
                if not self._looks:
                    self._calendar.promote_now()  # a scheduled job may have become visible late, too
        expected = rung or bool(self._looks) or not self._dry
        # On a ring the claim comes first, since somebody waits for it.
        promoted = 0 if rung else await self._calendar.promote()
        jobs = await self._claim()
        if jobs and polled and not expected and not promoted:
            self.counts.missed_wakes += 1
            log.warning("a notification was missed", found=len(jobs), missed=self.counts.missed_wakes)
        if rung:
            promoted = await self._calendar.promote()
        self._look = self._look or bool(promoted)
        if polled or (not jobs and not promoted):
            await self._unhandled.report(self._loop.time())
        return bool(jobs or promoted)

    async def _claim(self) -> list[Job]:
        limit = self._room()
        try:
            jobs, lost = await self._line.retry(lambda connection: claim(connection, self.worker, limit))
        except asyncpg.UniqueViolationError:
            jobs, lost = [], False  # somebody else was quicker
        self.counts.claims += 1
        self.counts.wasted_claims += not jobs
        self.counts.claimed += len(jobs)
        self._dry = len(jobs) < limit
        if self._budget is not None:
            self._budget -= len(jobs)
            self._claims = self._claims and self._budget > 0
        if lost:
            # The lost answer may have been a claim that is ours without our knowing.
            self._next_stock = 0.0
        self._pace.mark(self._loop.time(), self.counts.ended)
        self._crew.take(jobs)
        return jobs

    async def _take_stock(self) -> None:
        """Stops what the database says is ours no more, and gives back what it says is ours and we don't know of.

        No claim is under way meanwhile, so whatever we hold we know of before we ask.
        """
        self._next_stock = self._loop.time() + self._plan.stock_seconds
        async with self._claiming_one:
            known = set(self._crew.held)
            theirs, _ = await self._line.retry(lambda connection: held(connection, self.worker.id))
        unknown = {job_id: attempt_id for job_id, attempt_id in theirs.items() if attempt_id not in known}
        if unknown:
            log.warning("claims whose answer was lost are given back", jobs=sorted(unknown))
            await self._line.retry(lambda connection: release_unstarted(connection, unknown))
        self._crew.lose(known.difference(theirs.values()))

    # How much to claim

    def _room(self) -> int:
        room = self._crew.room + self._ahead()
        return room if self._budget is None else min(room, self._budget)

    def _has_room(self) -> bool:
        return self._crew.room >= self._room_worthwhile()

    def _room_worthwhile(self) -> int:
        """One free place is worth a claim where jobs take long; where they fly through, many share one."""
        ahead = self._ahead()
        return max(1, ahead // 2) - ahead

    def _ahead(self) -> int:
        return self._pace.ahead(self._loop.time(), self.counts.ended)

    # What others tell us

    def _on_bell(self, payload: str) -> None:
        self.counts.wakes += 1
        self._calendar.on_bell()
        self._look_now()

    def _look_now(self) -> None:
        self._look = True
        self._wakeup.set()

    def _on_connected(self) -> None:
        """Whatever was rung for meanwhile was not heard."""
        self._calendar.promote_now()
        self._calendar.tick_now()
        self._look_now()

    def _on_schedules(self, payload: str) -> None:
        self._calendar.tick_now()
        self._wakeup.set()

    def _on_cancel(self, payload: str) -> None:
        """Anybody can send this: it only makes us look at what is still ours."""
        if str(self.worker.id) in payload:
            self._next_stock = 0.0
            self._wakeup.set()

    def _on_settled(self, ending: Ending, state: JobState | None) -> None:
        self._crew.on_settled(ending, state)

    def _on_written(self) -> None:
        if self._plan.once:
            self._look_now()  # without a bell: what was written may have made others runnable
        elif not self._claims:
            self._wakeup.set()  # perhaps that was the last

    def _on_ended(self) -> None:
        if self._plan.once:
            self._look_now()  # its own transaction may have made others runnable
        elif not self._claims or (self._is_cramped and self._crew.room >= self._enough):
            self._wakeup.set()
