"""Simulated workers: real claims, leases and settles, without processes or handlers."""

import asyncio
import json
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import asyncpg

from reactor.children import Children
from reactor.database import statements, wakeups
from reactor.database.connection import Connection
from reactor.database.wakeups import NEVER, Wakeups
from reactor.job import Job
from reactor.lifecycle.claim import Again, claim_once, claim_one, inherit
from reactor.lifecycle.lease import Worker, heartbeat, register_worker
from reactor.lifecycle.release import Release, after_crash, after_shutdown, release
from reactor.lifecycle.settle import abandon, settle
from reactor.lifecycle.steps import Planned, Record, StepState, plan_steps, record_steps
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome, Partial, Snoozed
from reactor.pod.quarantine import hand_over
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.marks import Marks
from reactor.worker.slots import used_up
from tests.stress.idleness import Resting
from tests.stress.producers import job_type, options
from tests.stress.world import QUEUES, QUOTAS, TYPES, World

_LEASE_SECONDS = 600.0
_DURATIONS = (0.0, 0.0, 0.001, 0.005, 0.02, 0.1)
_RELEASES: tuple[Release, ...] = ("released", "crashed", "culprit", "unstarted")
_NAMES = {Completed: "completed", Partial: "partial", Failed: "failed", Errored: "error", Snoozed: "snoozed"}
_END_LEASE = "update reactor.workers set lease_until = clock_timestamp() where id = $1"


class Fleet:
    """All workers of a run. The first two serve everything, so that every job has a worker; the others some of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._alive: dict[int, SimulatedWorker] = {}

    def ring(self) -> None:
        """A notification has arrived."""
        for worker in self._alive.values():
            worker.wakeups.notify()

    def resting(self) -> Iterable[Resting]:
        return (one.resting() for one in self._alive.values() if one.has_free_slots)

    async def keep_alive(self, number: int) -> None:
        """One worker after the other, each until it dies or is shut down."""
        name = f"worker {number}"
        chance = self._world.chance(name)
        while not self._world.is_over:
            async with self._simulate(_worker(self._world, name, number, chance), chance) as worker:
                self._alive[number] = worker
                try:
                    await worker.run()
                finally:
                    del self._alive[number]
            for successor in worker.successors:
                async with self._simulate(successor, chance) as quarantined:
                    await quarantined.run_inherited()

    @asynccontextmanager
    async def _simulate(self, worker: Worker, chance: random.Random) -> "AsyncIterator[SimulatedWorker]":
        async with AsyncExitStack() as stack:
            claims, settles = [
                await stack.enter_async_context(self._world.sessions.open(f"{worker.pod} {what}"))
                for what in ("claims", "settles")
            ]
            yield SimulatedWorker(self._world, worker, chance, claims, settles)


def _worker(world: World, name: str, number: int, chance: random.Random) -> Worker:
    capacity = chance.choice((1, 5, 20, 50))
    if number < 2:
        # Claims of limited jobs take turns: if all were for one job, that would take long.
        return Worker(name, QUOTAS, capacity=capacity if number else 50)
    types = chance.sample(TYPES, chance.randint(1, len(TYPES)))
    queues = tuple(chance.sample(QUEUES, chance.randint(1, len(QUEUES))))
    slots = {queue: chance.randint(1, 3) for queue in queues if world.mix.has("slots", chance)}
    return Worker(name, {job_type: QUOTAS[job_type] for job_type in types}, queues, capacity, slots=slots)


class SimulatedWorker:
    def __init__(
        self, world: World, worker: Worker, chance: random.Random, claims: Connection, settles: Connection
    ) -> None:
        self.worker = worker
        self.successors: list[Worker] = []
        """To whom its pod handed over some of its jobs."""
        self.wakeups = Wakeups(
            wakeups.Timings(ClaimLoop.timings.recheck_seconds, poll_seconds=0),
            not_before=lambda: 0.0 if self._free > 0 else NEVER,
            due_at=lambda: min(self._retry_at, self._opens_at) if self._got_all else 0.0,
        )
        self._world = world
        self._chance = chance
        self._claims = claims
        self._settles = settles
        self._settling = asyncio.Lock()
        self._held: dict[UUID, Job] = {}
        self._once: set[UUID] = set()
        """Attempts that must not start again, as far as the database was told."""
        self._got_all = True
        self._retry_at = NEVER
        """The last claim left jobs because other transactions had locked something."""
        self._retry_pause = ClaimLoop.timings.locked_pause_seconds[0]
        self._opens_at = NEVER
        """When a limit allows more of the jobs that the last claim left."""
        self._waits_for_slot = False
        """A queue has all slots that it may have: the end of a job allows another one."""
        self._marks = Marks()
        self._waits_since = NEVER
        self._idle_since = NEVER
        self._is_stopping = False
        self._settled: deque[tuple[int, UUID]] = deque(maxlen=20)
        """Attempts that have ended: whatever is sent for them is stale."""

    @property
    def _free(self) -> int:
        return self.worker.capacity - len(self._held)

    @property
    def has_free_slots(self) -> bool:
        return self._free > 0

    def resting(self) -> Resting:
        is_waiting = self._got_all and self._retry_at == NEVER and self.wakeups.is_quiet
        full = [queue for queue, free in self._free_of_queues().items() if free <= 0]
        return Resting(self.worker, self._waits_since if is_waiting else NEVER, self._idle_since, full)

    def _free_of_queues(self) -> dict[str, int]:
        taken = Counter(job.queue for job in self._held.values())
        return {queue: slots - taken[queue] for queue, slots in self.worker.slots.items()}

    async def run(self) -> None:
        self._world.attempts.workers[self.worker.id] = self.worker
        await register_worker(self._claims, self.worker, _LEASE_SECONDS)
        self.wakeups.notify()
        async with asyncio.TaskGroup() as tasks:
            end = tasks.create_task(self._live_and_die())
            while not self.wakeups.is_stopped:
                await self._wait()
                if not self.wakeups.is_stopped:
                    for chunk in self._chunks(await self._claim()):
                        tasks.create_task(self._attempt(chunk))
            await end

    async def run_inherited(self) -> None:
        """What was handed over, one after the other; then the worker is retired."""
        async with self._world.sessions.doing(self._claims, "inherit"):
            for job in await inherit(self._claims, self.worker):
                self._held[job.attempt_id] = job
                await self._attempt([job])
        await self._shut_down()

    async def _wait(self) -> None:
        self._waits_since = asyncio.get_running_loop().time()
        await self.wakeups.next()
        self._waits_since = NEVER

    async def _claim(self) -> list[Job]:
        if self._world.mix.has("claims by id", self._chance):
            jobs = await self._claim_by_id()
        else:
            jobs = []
        if self._free > 0:
            return jobs + await self._claim_next()
        self._got_all, self._idle_since = False, NEVER
        return jobs

    async def _claim_by_id(self) -> list[Job]:
        """Any that is not known to have ended."""
        unfinished = list(self._world.model.unfinished)
        job_id = self._chance.choice(unfinished) if unfinished else 0
        job_type = self._world.model.jobs[job_id].now.job_type if job_id else ""
        if job_type not in self.worker.job_types:
            return []
        self._world.attempts.asked_for.add((job_id, self.worker.id))
        refusals = [asyncpg.UniqueViolationError]
        async with self._world.sessions.doing(self._claims, "claim by id", refusals=refusals):
            job = await claim_one(self._claims, self.worker, job_id, self.worker.job_types[job_type])
            if job is not None:
                self._world.report.count("jobs claimed by id")
                self._held[job.attempt_id] = job
                return [job]
        return []

    async def _claim_next(self) -> list[Job]:
        limit = self._chance.randint(1, self._free)
        # A unique violation: another worker was faster with a scope.
        refusals = [asyncpg.UniqueViolationError]
        self.wakeups.check()
        loop = asyncio.get_running_loop()
        free = self._free_of_queues()
        marks = self._marks.next(loop.time()) if self._world.mix.has("marks", self._chance) else None
        self._waits_for_slot = False
        async with self._world.sessions.doing(self._claims, "claim", refusals=refusals):
            jobs, again, opens_in = await claim_once(self._claims, self.worker, limit, marks, free)
            now = loop.time()
            # As if claims took long: that is when workers claim from marks.
            self._marks.claimed(jobs, limit=limit, used=marks is not None, took_seconds=1.0, now=now)
            self._world.report.count("claim from marks", marks is not None)
            self._got_all = len(jobs) < limit and again is not Again.NOW and marks is None
            first, longest = ClaimLoop.timings.locked_pause_seconds
            self._retry_pause = min(2 * self._retry_pause, longest) if again is Again.LATER else first
            self._retry_at = now + self._retry_pause if again in (Again.NOW, Again.LATER) else NEVER
            self._opens_at = NEVER if opens_in is None else now + max(opens_in, first)
            self._check_slots(jobs, free)
            self._held |= {job.attempt_id: job for job in jobs}
            self._note_slots(jobs, free)
            # The claim of a worker that has the lock of the same limit may take what this one wants.
            is_locked = opens_in is not None and opens_in <= first
            if not self._got_all or self._retry_at < NEVER or is_locked:
                self._idle_since = NEVER
            elif self._idle_since == NEVER:
                self._idle_since = now
            self._world.report.count("jobs claimed", len(jobs))
            return jobs
        self.wakeups.notify()
        return []

    def _check_slots(self, jobs: list[Job], free: dict[str, int]) -> None:
        for queue, number in Counter(job.queue for job in jobs).items():
            if number > max(0, free.get(queue, number)):
                self._world.report.violation("slots", f"{number} jobs of {queue} were claimed for {free} free slots")

    def _note_slots(self, jobs: list[Job], free: dict[str, int]) -> None:
        if queues := used_up(jobs, free):
            now_free = self._free_of_queues()
            self._waits_for_slot = all(now_free[queue] <= 0 for queue in queues)
            if not self._waits_for_slot:  # a job has ended meanwhile
                self._opens_at = 0.0

    def _chunks(self, jobs: list[Job]) -> Iterable[list[Job]]:
        """Jobs that end together."""
        self._chance.shuffle(jobs)
        while jobs:
            size = self._chance.randint(1, len(jobs))
            yield jobs[:size]
            jobs = jobs[size:]

    # The end of the worker

    async def _live_and_die(self) -> None:
        world, chance = self._world, self._chance
        while not world.is_over:
            await asyncio.sleep(0.1)
            if world.is_quiet:
                continue
            if world.mix.has("deaths", chance) and chance.random() < 0.3:
                await self._die()
                return
            if world.mix.has("hand overs", chance) and chance.random() < 0.3:
                await self._crash()
                return
            if world.mix.has("shutdowns", chance) and chance.random() < 0.3:
                await self._shut_down()
                return
            async with self._settling, world.sessions.doing(self._settles, "heartbeat"):
                await heartbeat(self._settles, self.worker.id, _LEASE_SECONDS)
        self.wakeups.stop()

    async def _die(self) -> None:
        """Either its connections break, perhaps during a statement, or it continues without knowing that it is dead."""
        self._world.report.count("worker died")
        self._world.attempts.dead.add(self.worker.id)
        if self._chance.random() < 0.5:
            self._is_stopping = True
            self.wakeups.stop()
            self._claims.terminate()
            self._settles.terminate()
        async with self._world.sessions.open("undertaker") as connection:
            await connection.execute(_END_LEASE, self.worker.id)
        self.wakeups.stop()

    async def _crash(self) -> None:
        """Its process dies. Its pod hands some of the jobs over to workers of their own, and releases the others."""
        world, chance = self._world, self._chance
        world.report.count("worker crashed")
        self._is_stopping = True
        self.wakeups.stop()
        self._claims.terminate()
        self._settles.terminate()
        world.attempts.crashed.add(self.worker.id)
        known = {job.id: job.attempt_id for job in self._held.values()}
        async with world.sessions.open("pod") as connection:
            suspects = chance.sample(sorted(known), chance.randint(0, len(known)))
            await self._hand_over(connection, {job_id: known[job_id] for job_id in suspects})
            started = self._once | {one for one in known.values() if chance.random() < 0.5}
            async with world.sessions.doing(connection, "after a crash"):
                await self._hand_over(
                    connection, await after_crash(connection, self.worker.id, started, {}, "its process crashed")
                )
            # A claim may have been on its way to the server.
            world.attempts.dead.add(self.worker.id)
            await connection.execute(_END_LEASE, self.worker.id)

    async def _hand_over(self, connection: Connection, jobs: dict[int, UUID]) -> None:
        if not jobs:
            return
        worker = self.worker
        successor = Worker(worker.pod, worker.job_types, worker.queues, capacity=1)
        self._world.attempts.workers[successor.id] = successor
        charged = self._chance.random() < 0.5
        for attempt_id in jobs.values():
            self._world.attempts.sends(attempt_id, "handed over, charged" if charged else "handed over")
            if charged:
                self._world.attempts.sends(attempt_id, "culprit")  # without an attempt left
        async with self._world.sessions.doing(connection, "hand over"):
            if await hand_over(connection, successor, _LEASE_SECONDS, jobs, "its process crashed", charged=charged):
                self.successors.append(successor)

    async def _shut_down(self) -> None:
        self._world.report.count("worker shut down")
        self.wakeups.stop()
        self._is_stopping = True
        self._world.attempts.dead.add(self.worker.id)
        self._world.attempts.shut_down.add(self.worker.id)
        async with self._settling, self._world.sessions.doing(self._settles, "shutdown"):
            started = self._once | {one for one in self._held if self._chance.random() < 0.5}
            await after_shutdown(self._settles, self.worker.id, started, fail=False)

    # Attempts

    async def _attempt(self, jobs: list[Job]) -> None:
        """What handlers of these jobs do, and how they end."""
        await asyncio.sleep(self._chance.choice(_DURATIONS[:3] if self._world.is_quiet else _DURATIONS))
        for feature, act in (
            ("once", self._start_once),
            ("progress", self._report_progress),
            ("steps", self._take_steps),
        ):
            if self._world.mix.has(feature, self._chance):
                async with self._settling:
                    if not self._is_stopping:
                        await act(jobs)
        async with self._settling:
            if not self._is_stopping:
                await self._end(jobs)
                if self._world.mix.has("stale", self._chance):
                    await self._send_stale()
        for job in jobs:
            del self._held[job.attempt_id]
        if self._waits_for_slot:
            self._waits_for_slot, self._opens_at = False, 0.0
            self._waits_since, self._idle_since = asyncio.get_running_loop().time(), NEVER
        self.wakeups.check()

    async def _start_once(self, jobs: list[Job]) -> None:
        in_lock_order = sorted(self._chance.sample(jobs, self._chance.randint(1, len(jobs))))
        # Also those of a statement whose reply is lost.
        self._once |= {job.attempt_id for job in in_lock_order}
        async with self._world.sessions.doing(self._settles, "start once"):
            await self._settles.fetch(
                statements.REPORT_FACTS,
                [job.id for job in in_lock_order],
                [job.attempt_id for job in in_lock_order],
                [None] * len(in_lock_order),
                [None] * len(in_lock_order),
                None,
                [json.dumps({"attempt": job.attempts}) for job in in_lock_order],
                [True] * len(in_lock_order),
            )

    async def _report_progress(self, jobs: list[Job]) -> None:
        in_lock_order = sorted(jobs)
        async with self._world.sessions.doing(self._settles, "progress"):
            await self._settles.fetch(
                statements.REPORT_PROGRESS,
                [job.id for job in in_lock_order],
                [job.attempt_id for job in in_lock_order],
                [self._chance.random() for _ in jobs],
                [None] * len(jobs),
                None,
            )

    async def _take_steps(self, jobs: list[Job]) -> None:
        job = self._chance.choice(jobs)
        async with self._world.sessions.doing(self._settles, "steps"):
            planned = {"one": Planned(1, 1), "two": Planned(2, 1)}
            await plan_steps(self._settles, job.id, job.attempt_id, planned, started=True, lists_stored=True)
            state = self._chance.choice((StepState.COMPLETED, StepState.FAILED))
            await record_steps(self._settles, [Record(job.id, job.attempt_id, "one", state)])

    async def _end(self, jobs: list[Job]) -> None:
        """All of them, in any way. Jobs that are not ours any more were cancelled or taken: their handlers stop."""
        mix, chance = self._world.mix, self._chance
        settled: set[int] = set()
        if mix.has("releases", chance):
            settled = await self._release(jobs)
        elif mix.has("abandoned", chance):
            settled = await self._abandon(jobs)
        elif mix.has("transactions", chance):
            settled = await self._settle_in_transaction(jobs)
        else:
            settled = await self._settle(jobs)
        if self._settles.is_closed():
            return
        self._settled.extend((job.id, job.attempt_id) for job in jobs if job.id in settled)
        stopped = [job.id for job in jobs if job.id not in settled]
        while stopped and self._can_repeat:
            async with self._world.sessions.doing(self._settles, "stopped"):
                await self._settles.fetch(statements.RELEASE_STOPPED, self.worker.id, stopped)
                return

    @property
    def _can_repeat(self) -> bool:
        return not self._settles.is_closed() and not self._world.is_over

    async def _settle(self, jobs: list[Job]) -> set[int]:
        endings = self._endings(jobs)
        # A deadlock is a violation; all the same, the jobs must end.
        while self._can_repeat:
            async with self._world.sessions.doing(self._settles, "settle"):
                written = await settle(self._settles, endings)
                self._confirm(endings, written)
                return set(written)
        return set()

    async def _settle_in_transaction(self, jobs: list[Job]) -> set[int]:
        """As a handler's own transaction does, which may also be rolled back at the last moment."""
        endings = self._endings(jobs)
        async with self._world.sessions.doing(self._settles, "settle in a transaction"):
            transaction = self._settles.transaction()
            await transaction.start()
            try:
                written = await settle(self._settles, endings)
                await asyncio.sleep(self._chance.choice((0.0, 0.01, 0.05)))
            except BaseException:
                if not self._settles.is_closed():
                    await transaction.rollback()
                raise
            if self._chance.random() < 0.8:
                await transaction.commit()
                self._confirm(endings, written)
                return set(written)
            await transaction.rollback()
        return set() if self._settles.is_closed() else await self._settle(jobs)

    def _endings(self, jobs: list[Job]) -> list[Ending]:
        endings = [Ending(job.id, job.attempt_id, self._outcome(job), self._children()) for job in jobs]
        for ending in endings:
            self._world.attempts.sends(ending.attempt_id, _NAMES[type(ending.outcome)])
        return endings

    def _confirm(self, endings: list[Ending], written: Iterable[int]) -> None:
        attempts = {ending.job_id: ending.attempt_id for ending in endings}
        for job_id in written:
            self._world.attempts.settled(job_id, attempts[job_id])

    def _outcome(self, job: Job) -> Outcome:
        mix, chance = self._world.mix, self._chance
        result = {"attempt": str(job.attempt_id)}
        if mix.has("errors", chance):
            return Errored("an error", chance.choice((0.0, 0.02, 0.1)))
        if mix.has("failures", chance) and chance.random() < 0.5:
            return Failed("a failure")
        if mix.has("partials", chance) and chance.random() < 0.5:
            return Partial(result)
        if job.attempt_id not in self._once and mix.has("snoozes", chance) and chance.random() < 0.5:
            return Snoozed(chance.choice((0.0, 0.05)))
        return Completed(result)

    def _children(self) -> Children | None:
        mix, chance = self._world.mix, self._chance
        # Fewer than one child per job, or they would never end.
        if not mix.has("children", chance) or chance.random() < 0.5:
            return None
        children = [{"job_type": job_type(self._world, chance), **options(self._world, chance)} for _ in range(2)]
        if chance.random() < 0.3:
            children[1]["depends_on"] = [{"place": 1, "needs": chance.choice(["completed", "finished"])}]
        return Children(map(json.dumps, children))

    async def _release(self, jobs: list[Job]) -> set[int]:
        claims = {job.id: job.attempt_id for job in jobs}
        has_started_once = not self._once.isdisjoint(claims.values())
        outcome = self._chance.choice([one for one in _RELEASES if one != "unstarted" or not has_started_once])
        for attempt_id in claims.values():
            self._world.attempts.sends(attempt_id, outcome)
        async with self._world.sessions.doing(self._settles, "release"):
            written = await release(self._settles, claims, outcome=outcome, why="the stress released it")
            for job_id in written:
                self._world.attempts.settled(job_id, claims[job_id])
            return set(written)
        return set() if self._settles.is_closed() else await self._settle(jobs)

    async def _abandon(self, jobs: list[Job]) -> set[int]:
        """Their handlers stop a little later: `_end` reports that."""
        for job in jobs:
            outcome: Errored | Failed = (
                Errored("it did not stop", 0.01) if self._chance.random() < 0.5 else Failed("it did not stop")
            )
            self._world.attempts.sends(job.attempt_id, "abandoned")
            async with self._world.sessions.doing(self._settles, "abandon"):
                if await abandon(self._settles, job.id, job.attempt_id, outcome) is not None:
                    self._world.attempts.settled(job.id, job.attempt_id)
                    self._settled.append((job.id, job.attempt_id))
                    continue
            if not self._settles.is_closed():
                await self._settle([job])
        await asyncio.sleep(self._chance.choice((0.0, 0.02)))
        return set()

    async def _send_stale(self) -> None:
        """Everything that an attempt may send, long after its end."""
        if not self._settled:
            return
        job_id, attempt_id = self._chance.choice(self._settled)
        self._world.attempts.sends(attempt_id, "error")
        async with self._world.sessions.doing(self._settles, "stale"):
            written = await settle(self._settles, [Ending(job_id, attempt_id, Errored("stale"))])
            self._confirm([Ending(job_id, attempt_id, Errored("stale"))], written)
            progress = await self._settles.fetch(
                statements.REPORT_PROGRESS, [job_id], [attempt_id], [0.5], ["stale"], None
            )
            planned = await plan_steps(self._settles, job_id, attempt_id, {"stale": Planned(9, 1)}, started=True)
            chained = await self._settles.fetch(statements.CHAIN, [job_id], [attempt_id], ['[{"job_type": "read"}]'])
            if progress or planned is not None or chained:
                self._world.report.violation("fence", f"stale attempt {attempt_id} of job {job_id} wrote something")
