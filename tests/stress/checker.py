"""Checks everything against one snapshot after the other, while the run goes on and when it is at rest."""

import asyncio
import time
from collections.abc import Sequence

from reactor.database.connection import Connection
from tests.stress import invariants, journal
from tests.stress.explanations import Explanations
from tests.stress.followers import Follower
from tests.stress.idleness import Idleness
from tests.stress.wakeups import Wakeups
from tests.stress.world import World

_PAUSE_SECONDS = 0.05
_STUCK_SECONDS = 5.0
_STUCK_CHECKS = 20
"""A machine may be slower than that: this many snapshots must show the same."""
_LONGEST_REST_SECONDS = 120.0
"""Most take less than five."""
_CATCH_UP_SECONDS = 10.0
_STATES = "select id, state, attempt_id, attempts, worker_id from reactor.jobs"
_WAKE = "notify reactor_jobs"
_LEFT = (
    "select id, state, queue, job_type, lane, scope, parked, run_after, waiting_on, worker_id from reactor.jobs"
    " where finished_at is null or worker_id is not null order by id limit 10"
)


class Checker:
    def __init__(self, world: World, idleness: Idleness, wakeups: Wakeups, followers: Sequence[Follower]) -> None:
        self._world = world
        self._idleness = idleness
        self._wakeups = wakeups
        self._followers = followers
        self._explanations = Explanations(world.report)
        self._checks = 0

    async def run(self) -> None:
        """Until the run is over."""
        async with self._world.sessions.open("checker") as connection:
            vacuumed_at = time.monotonic()
            while not self._world.is_over:
                await self._check(connection)
                if time.monotonic() > vacuumed_at + 2:
                    await connection.execute("vacuum (truncate off) stress.journal, stress.edges")
                    vacuumed_at = time.monotonic()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _check(self, connection: Connection) -> None:
        world, now = self._world, asyncio.get_running_loop().time()
        async with world.sessions.doing(connection, "check"):
            async with connection.transaction(isolation="repeatable_read"):
                # Its first query: the snapshot is not older than what the others judge.
                entries, edges = await journal.take(connection)
                seen_at = time.time()
                await invariants.check(connection, world.report)
                await world.limits.read(connection)
                claimable = await self._idleness.check(connection, now)
                await self._explanations.check(connection, claimable)
            self._wakeups.check(world.model.apply(entries, edges, seen_at))
            world.limits.check(world.model)
        self._checks += 1

    async def see_everything(self) -> None:
        """Waits for a snapshot that is taken from now on."""
        enough = self._checks + 2
        while self._checks < enough:
            await asyncio.sleep(0.01)

    async def come_to_rest(self, connection: Connection) -> bool:
        """Waits until all jobs have ended, and no worker holds any. False: something is stuck for good."""
        model, last_change, was_woken = self._world.model, time.monotonic(), False
        applied, checks, began_at = model.applied, self._checks, last_change
        while left := model.unfinished | model.held:
            await asyncio.sleep(0.05)
            if time.monotonic() > began_at + _LONGEST_REST_SECONDS:
                rows = [dict(row) for row in await connection.fetch(_LEFT)]
                latest = "; ".join(f"{entry.id} {entry.at - model.latest[-1].at:.3f} {entry}" for entry in model.latest)
                self._world.report.violation(
                    "stuck", f"{len(left)} jobs don't end: {rows}. The latest changes: {latest}"
                )
                return False
            if model.applied != applied:
                applied, checks, last_change = model.applied, self._checks, time.monotonic()
            if time.monotonic() < last_change + _STUCK_SECONDS or self._checks < checks + _STUCK_CHECKS:
                continue
            rows = [dict(row) for row in await connection.fetch(_LEFT)]
            if was_woken:
                self._world.report.violation("stuck", f"{len(left)} jobs don't end: {rows}")
                return False
            # A wake-up that helps tells what was missing.
            self._world.report.violation("nothing happens", f"until a wake-up is sent by hand: {rows[:3]}")
            await connection.execute(_WAKE)
            was_woken, checks, last_change = True, self._checks, time.monotonic()
        return True

    async def check_at_rest(self, connection: Connection) -> None:
        world = self._world
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        # What another transaction had locked is put off by 100 ms.
        while await invariants.find(connection, invariants.AT_REST) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await invariants.check(connection, world.report, invariants.AT_REST)
        for row in await connection.fetch(_STATES):
            job = world.model.jobs.get(row["id"])
            known = job and (job.now.state, job.now.attempt_id, job.now.attempts, job.now.worker_id)
            if known != tuple(row)[1:]:
                world.report.violation("journal", f"job {row['id']} is {tuple(row)}, by the journal {known}")
        for follower in self._followers:
            deadline = time.monotonic() + _CATCH_UP_SECONDS
            while differences := await follower.differences(connection):
                await asyncio.sleep(0.05)
                if time.monotonic() > deadline:
                    for difference in differences[:3]:
                        world.report.violation("stream", difference)
                    break
        world.report.count("rests")
