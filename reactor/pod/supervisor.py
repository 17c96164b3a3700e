"""Keeps worker processes running, and the database tidy whatever becomes of them.

It runs no handler itself: nothing that one does to its event loop, its interpreter or its process can reach the
heartbeat, the signals or the tidying, which are here.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from reactor.concurrency import first_of
from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.errors import ReactorError, WorkerNotStarted, first_error
from reactor.lifecycle.lease import Worker, held
from reactor.log import get_logger
from reactor.pod.heartbeat import Keeper
from reactor.pod.recovery import Held, after_crash, after_shutdown, into_quarantine
from reactor.pod.sweeper import keep_sweeping, sweep
from reactor.pod.worker_process import BLOCKED, Child
from reactor.worker.process import Orders

log = get_logger(__name__)
Answer = TypeVar("Answer")

# The database must be tidy 2 s after the grace period: handlers get the first part of it to clean up, we the rest.
_INTERRUPT_SECONDS = 0.5
_TIDY_SECONDS = 1.2
_LOOK_SECONDS = 0.5
_STRAGGLERS_SECONDS = 0.5
_QUICK_DEATH_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class Watch:
    """What a supervisor watches over, and how."""

    orders: Orders
    processes: int
    heartbeat_seconds: float
    grace_seconds: float
    fail_on_shutdown: bool


class Supervisor:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._orders = watch.orders
        self._keeper = Keeper(
            watch.orders.options.url,
            watch.orders.pod,
            watch.orders.lease_seconds,
            watch.heartbeat_seconds,
            self._on_lease_lost,
            self._counts,
        )
        self._url = watch.orders.options.url
        self._children: list[Child] = []
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._killed = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._job_types: dict[str, int | None] = {}
        self.interrupted = 0
        """Jobs that had to be given back, or failed, because they did not end in the grace period."""
        self.failed = 0
        """Attempts that failed, as those processes told that ended by themselves."""
        self.untidy = False
        """The database could not be reached at the end."""
        self.is_ready = asyncio.Event()

    @property
    def keeps_its_leases(self) -> bool:
        return self._keeper.is_well

    @property
    def is_listening(self) -> bool:
        """There are worker processes, and all of them hear notifications, by their own account."""
        working = self._working
        return bool(working) and all(child.is_listening for child in working)

    @property
    def counts(self) -> dict[UUID, dict[str, Any]]:
        """What the worker processes that live have done, as they told last."""
        return {child.worker_id: child.counts for child in self._working if child.counts}

    @property
    def pod(self) -> str:
        return self._orders.pod

    @property
    def _working(self) -> list[Child]:
        return [child for child in self._children if child.ready.is_set() and child.is_running]

    def _counts(self, worker_id: UUID) -> str | None:
        for child in self._children:
            if child.worker_id == worker_id and child.counts:
                return json.dumps(child.counts)
        return None

    def stop(self) -> None:
        """Asked once, jobs get the grace period to end; asked again, they are ended at once."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def stop_at_once(self) -> None:
        self._at_once.set()
        self._stopping.set()

    async def run(self) -> None:
        """Until it is stopped, or every worker process has done what it was to do."""
        try:
            async with asyncio.TaskGroup() as helpers:
                tasks = [helpers.create_task(helper) for helper in self._helpers()]
                try:
                    async with asyncio.TaskGroup() as self._tasks:
                        for _ in range(self._watch.processes):
                            self._tasks.create_task(self._keep_running())
                finally:
                    for child in self._children:
                        child.kill("the supervisor ended")
                    for task in tasks:
                        task.cancel()
        except* ReactorError as errors:
            raise first_error(errors) from None

    def _helpers(self) -> list[Coroutine[Any, Any, None]]:
        helpers = [self._keeper.run(), self._end_the_blocked(), self._end_all()]
        if not self._orders.options.once:
            helpers.append(keep_sweeping(self._url, self._orders.pod, self._watch.heartbeat_seconds))
        return helpers

    # Worker processes

    async def _keep_running(self) -> None:
        """One worker process after the other in this place, each another incarnation."""
        pause = 0.0
        while not self._stopping.is_set():
            child = await self._start(replace(self._orders, worker_id=str(uuid4())))
            await first_of(child.ended(), child.worn.wait())
            self._tasks.create_task(self._see_off(child))
            if not child.worn.is_set() and not self._needs_another(child):
                return
            lived = time.monotonic() - child.started_at
            pause = 0.0 if child.worn.is_set() or lived > _QUICK_DEATH_SECONDS else pause * 2 or _FIRST_PAUSE_SECONDS
            await first_of(self._stopping.wait(), asyncio.sleep(min(pause, _LONGEST_PAUSE_SECONDS)))

    async def _start(self, orders: Orders) -> Child:
        child = await Child.start(orders)
        self._children.append(child)
        if self._stopping.is_set():
            child.tell("stop")
        if self._killed.is_set():
            child.kill("the pod was shut down")
        self._tasks.create_task(self._greet(child))
        return child

    async def _greet(self, child: Child) -> None:
        await first_of(child.ready.wait(), child.ended())
        if child.ready.is_set() and child.is_running:
            self._keeper.watch(child.worker_id)
            self._job_types = child.job_types
            self.is_ready.set()
            log.info("worker started", pid=child.pid, worker_id=str(child.worker_id), job_types=sorted(child.job_types))

    def _needs_another(self, child: Child) -> bool:
        if not child.ready.is_set() and not self.is_ready.is_set() and not self._stopping.is_set():
            # It never worked: somebody is looking at the terminal, and another start would hide the reason.
            raise child.failure or WorkerNotStarted(child.why, "It had not begun to work. Its log may say more.", 1)
        # How many of --max-jobs a process had done that died nobody knows.
        return child.done is None and not self._stopping.is_set() and self._orders.options.max_jobs is None

    async def _see_off(self, child: Child) -> None:
        """Whatever it held goes where it belongs."""
        begun = await self._farewell(child)
        if not child.ready.is_set():
            return
        if child.done is not None or self._stopping.is_set():
            await self._tidy_after_shutdown(child, begun)
            return
        blamed = _blamed(child, begun)
        suspects = await self._insist(lambda c: after_crash(c, child.worker_id, begun, blamed, child.why))
        if suspects and (worker := await self._admit(suspects, child.why, charged=False)):
            self._tasks.create_task(self._quarantine(worker))
        # A claim that was under way when the process died may have committed since.
        await first_of(self._stopping.wait(), asyncio.sleep(_STRAGGLERS_SECONDS))
        await self._tidy_after_shutdown(child, ())
        await self._insist(sweep)

    async def _farewell(self, child: Child) -> dict[UUID, float]:
        """Returns the attempts that had begun, with their deadlines."""
        await child.ended()
        self._keeper.leave(child.worker_id)
        self._children.remove(child)
        begun = child.begun.read()
        child.begun.close()
        if child.done is not None:
            self.failed += child.done["failed"]
        elif child.ready.is_set() and not self._stopping.is_set():
            self.failed += max(1, len(begun))
            log.error("worker died", pid=child.pid, why=child.why, running=len(begun))
        return begun

    async def _tidy_after_shutdown(self, child: Child, begun: Collection[UUID]) -> None:
        fail = self._watch.fail_on_shutdown and self._stopping.is_set()
        counts = json.dumps(child.counts) if child.counts else None
        self.interrupted += (
            await self._insist(lambda c: after_shutdown(c, child.worker_id, begun, fail=fail, counts=counts)) or 0
        )

    async def _insist(self, operation: Callable[[Connection], Awaitable[Answer]]) -> Answer | None:
        """Until it gets through, or time is up: then the lease has to end by itself."""
        line = ReconnectingConnection(self._url, f"reactor tidy {self._orders.pod}")
        work = asyncio.create_task(line.retry(operation))
        try:
            await first_of(work, self._last_call())
            if not work.done():
                log.error("no time left to tidy the database: others will, when the lease is over")
                self.untidy = True
                return None
            answer, _ = work.result()
            return answer
        except asyncpg.PostgresError as error:
            log.error("the database could not be tidied", error=str(error), sqlstate=error.sqlstate)
            return None
        finally:
            work.cancel()
            await line.close()

    async def _last_call(self) -> None:
        await self._killed.wait()
        await asyncio.sleep(_TIDY_SECONDS)

    # Quarantine

    async def _quarantine(self, worker: Worker) -> None:
        """Jobs that ran while more than one process died run again one at a time, in a process of their own.

        So the one that kills is known by its deed, and it alone is charged with it. It stays here until it has ended or
        has no attempt left; the others lose nothing, and are free again.
        """
        next_worker: Worker | None = worker
        while next_worker is not None:
            worker = next_worker
            options = replace(self._orders.options, inherits=True, once=False, max_jobs=None)
            child = await self._start(replace(self._orders, worker_id=str(worker.id), concurrency=1, options=options))
            await child.ended()
            begun = await self._farewell(child)
            next_worker = None
            if child.killed_itself and not self._stopping.is_set() and begun:
                left = await self._insist(partial(held, worker_id=worker.id)) or {}
                killers = {job_id: attempt_id for job_id, attempt_id in left.items() if attempt_id in begun}
                next_worker = await self._admit(killers, _deed(child), charged=True)
            # The others are cleared: we know now who it was.
            await self._tidy_after_shutdown(child, begun)

    async def _admit(self, jobs: Held, why: str, *, charged: bool) -> Worker | None:
        worker = Worker(self._orders.pod, self._job_types, self._orders.queues, 1)
        lease_seconds = self._orders.lease_seconds
        if not await self._insist(lambda c: into_quarantine(c, worker, lease_seconds, jobs, why, charged=charged)):
            return None
        self._keeper.watch(worker.id)
        log.warning("quarantine", jobs=sorted(jobs), worker_id=str(worker.id))
        return worker

    # Ends

    def _on_lease_lost(self, worker_id: UUID) -> None:
        for child in self._children:
            if child.worker_id == worker_id:
                child.kill("its lease was lost")

    async def _end_the_blocked(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for child in self._children:
                if child.is_running and child.overdue():
                    child.kill(BLOCKED)

    async def _end_all(self) -> None:
        """Stop claiming; then the grace period; then everything is cancelled; then killed."""
        await self._stopping.wait()
        log.info("stopping", grace_seconds=self._watch.grace_seconds, workers=len(self._children))
        self._tell_all("stop")
        await first_of(self._all_ended(), self._at_once.wait(), asyncio.sleep(self._watch.grace_seconds))
        self._tell_all("interrupt")
        await first_of(self._all_ended(), self._at_once.wait(), asyncio.sleep(_INTERRUPT_SECONDS))
        self._killed.set()
        for child in self._children:
            child.kill("the pod was shut down")

    def _tell_all(self, command: str) -> None:
        for child in self._children:
            child.tell(command)

    async def _all_ended(self) -> None:
        await asyncio.gather(*(child.ended() for child in self._children))


def _blamed(child: Child, begun: dict[UUID, float]) -> dict[UUID, str]:
    """Attempts that are known to have ended their process, and how. `begun`: those that ran, with their deadlines."""
    if child.broke_itself and len(begun) == 1:
        return dict.fromkeys(begun, _deed(child))
    now = time.monotonic()
    blocked = "It did not end in time, and blocked its worker process, which was killed."
    return {attempt_id: blocked for attempt_id, deadline in begun.items() if deadline and deadline < now}


def _deed(child: Child) -> str:
    return f"The job killed its worker process, in which it ran alone. {child.why}"
