"""Keeps worker processes running, and recovers what they held however they end.

It runs no handler itself, so no handler can block or kill the heartbeat, the signal handling or the recovery, which are
here.
"""

import asyncio
import json
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from reactor.concurrency import first_of
from reactor.database.retry import Backoff, RetryPolicy
from reactor.errors import ReactorError, WorkerNotStarted, first_error
from reactor.lifecycle.lease import Worker, split_slots
from reactor.lifecycle.release import SHUT_DOWN, after_crash, after_shutdown
from reactor.log import get_logger
from reactor.pod.heartbeat import Heartbeat
from reactor.pod.lease_guard import LeaseGuard
from reactor.pod.orphans import inherits_orphans, keep_reaping
from reactor.pod.quarantine import Quarantine
from reactor.pod.recovery import Recovery
from reactor.pod.sweeper import keep_sweeping, sweep
from reactor.pod.worker_process import BLOCKED, LEASE_LOST, WorkerProcess
from reactor.worker.options import Orders, WorkerOptions

log = get_logger(__name__)

# Jobs must be released 2 s after the grace period: handlers get the first part of it to clean up, recovery the rest.
_INTERRUPT_SECONDS = 0.5
_RECOVERY_SECONDS = 1.2
_RECOVERY_ROUND_TRIPS = 12
"""Where that takes longer: to connect, twice for each statement, and some to spare."""
_CHECK_SECONDS = 0.5
_STRAGGLERS_SECONDS = 0.5
_QUICK_DEATH_SECONDS = 5.0
_RESTART = RetryPolicy(first_seconds=0.1, longest_seconds=10.0)


@dataclass(frozen=True)
class PodOptions:
    app: str
    pod: str
    queues: tuple[str, ...]
    concurrency: int
    """Of each worker process."""
    processes: int
    lease_seconds: float
    heartbeat_seconds: float
    grace_seconds: float
    fail_on_shutdown: bool
    worker: WorkerOptions
    log_level: str
    log_as_json: bool


class Supervisor:
    def __init__(self, options: PodOptions) -> None:
        self.interrupted = 0
        """Jobs that were released, or failed, because they did not end in the grace period."""
        self.failed = 0
        """Failed attempts, as reported by processes that were done, and those of processes that died."""
        self.is_ready = asyncio.Event()
        self._options = options
        self._url = options.worker.url
        self._stopping = asyncio.Event()
        self._heartbeat = Heartbeat(
            self._url,
            options.pod,
            options.lease_seconds,
            options.heartbeat_seconds,
            self._on_lease_lost,
            self._counts_of,
            self._on_lease_renewed,
        )
        self._lease_guard = LeaseGuard(options.lease_seconds)
        self._recovery = Recovery(self._url, options.pod, self._recovery_deadline, prepares=options.worker.prepares)
        self._quarantine = Quarantine(
            self._recovery,
            self._heartbeat,
            options.lease_seconds,
            is_stopping=self._stopping.is_set,
            run_process=self._run_inheriting,
            release_held=self._release_held,
        )
        self._processes: list[WorkerProcess] = []
        self._starting = 0
        """Worker processes that are not among them yet."""
        self._at_once = asyncio.Event()
        self._killed = asyncio.Event()
        self._tasks: asyncio.TaskGroup
        self._job_types: dict[str, int | None] = {}

    @property
    def pod(self) -> str:
        return self._options.pod

    @property
    def renews_its_leases(self) -> bool:
        return self._heartbeat.is_well

    @property
    def is_listening(self) -> bool:
        """There are worker processes, and all of them report that they receive notifications."""
        working = self._working
        return bool(working) and all(process.is_listening for process in working)

    @property
    def left_jobs_claimed(self) -> bool:
        """The database could not be reached at the end: jobs stay claimed until the leases expire."""
        return self._recovery.is_incomplete

    @property
    def counts(self) -> dict[UUID, dict[str, Any]]:
        """Of the live worker processes, as reported last."""
        return {process.worker_id: process.report for process in self._working if process.counts}

    def stop(self) -> None:
        """The first call gives jobs the grace period to end; a second one stops immediately."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def stop_at_once(self) -> None:
        self._at_once.set()
        self._stopping.set()

    async def run(self) -> None:
        """Until it is stopped, or every worker process is done."""
        await first_of(self._heartbeat.open(), self._stopping.wait())
        try:
            async with asyncio.TaskGroup() as helpers:
                tasks = [helpers.create_task(helper) for helper in self._helpers()]
                try:
                    async with asyncio.TaskGroup() as self._tasks:
                        for _ in range(self._options.processes):
                            self._tasks.create_task(self._keep_one_running())
                finally:
                    for process in self._processes:
                        process.kill("the supervisor ended")
                    for task in tasks:
                        task.cancel()
        except* ReactorError as errors:
            raise first_error(errors) from None

    def _helpers(self) -> list[Coroutine[Any, Any, None]]:
        helpers = [
            self._heartbeat.run(),
            self._lease_guard.run(),
            self._check_processes(),
            self._shut_down(),
            self._prepare_releases(),
        ]
        if inherits_orphans():
            helpers.append(keep_reaping(self._is_own_child))
        if not self._options.worker.once:
            helpers.append(keep_sweeping(self._url, self._options.pod, self._options.heartbeat_seconds))
        return helpers

    # One worker process after the other

    async def _keep_one_running(self) -> None:
        """One worker process after the other, each with an identity of its own."""
        backoff = Backoff(_RESTART)
        while not self._stopping.is_set():
            process = await self._start(self._orders(uuid4()))
            await first_of(process.ended(), process.stuck.wait())
            self._tasks.create_task(self._recover(process))
            if not process.stuck.is_set() and not self._needs_another(process):
                return
            await self._pause(process, backoff)

    async def _recover(self, process: WorkerProcess) -> None:
        """Releases what an exited worker held."""
        await self._collect(process)
        if not process.ready.is_set():
            return
        if process.done is not None or self._stopping.is_set():
            await self._release_held(process)
            return
        if process.ended_because == LEASE_LOST:
            await self._release_held(process)
            await self._release_stragglers(process)
            return
        suspects = await self._recovery.retry(
            lambda c: after_crash(c, process.worker_id, process.started, process.causes, process.why_unsettled)
        )
        worker = Worker(self._options.pod, self._job_types, split_slots(self._options.queues)[0], 1)
        if suspects and await self._quarantine.admit(worker, suspects, process.why_unsettled):
            self._tasks.create_task(self._quarantine.run(worker))
        await self._release_stragglers(process)

    async def _collect(self, process: WorkerProcess) -> None:
        """Waits for its end, and notes what it left."""
        await process.ended()
        self._lease_guard.forget(process.pid)
        self._processes.remove(process)
        process.collect()
        if process.done is None and self._heartbeat.has_given_up(process.worker_id):
            process.ended_because = LEASE_LOST  # by the lease guard: this process was frozen, too
        if process.done is not None:
            self.failed += process.done["failed"]
        elif process.ready.is_set() and not self._stopping.is_set():
            self.failed += max(1, len(process.started))
            ended = sum(started.has_ended for started in process.started.values())
            running = len(process.started) - ended
            log.error("worker died", pid=process.pid, why=process.why, running=running, ended_and_not_written=ended)

    def _needs_another(self, process: WorkerProcess) -> bool:
        if not process.ready.is_set() and not self.is_ready.is_set() and not self._stopping.is_set():
            # It never worked: an operator is looking at the terminal, and another start would hide the reason.
            raise process.failure or WorkerNotStarted(process.why, "It ended before it was ready. See its log.", 1)
        # It is unknown how many of --max-jobs a process that died had done.
        return process.done is None and not self._stopping.is_set() and self._options.worker.max_jobs is None

    async def _pause(self, process: WorkerProcess, backoff: Backoff) -> None:
        """Before the next start, if this process died soon after its own."""
        if process.stuck.is_set() or time.monotonic() - process.started_at > _QUICK_DEATH_SECONDS:
            backoff.reset()
        else:
            await first_of(self._stopping.wait(), asyncio.sleep(backoff.next_seconds()))

    async def _start(self, orders: Orders) -> WorkerProcess:
        self._starting += 1
        try:
            process = await WorkerProcess.start(orders)
            self._processes.append(process)
        finally:
            self._starting -= 1
        if self._stopping.is_set():
            process.send("stop")
        if self._killed.is_set():
            process.kill("the pod was shut down")
        self._tasks.create_task(self._await_ready(process))
        return process

    async def _await_ready(self, process: WorkerProcess) -> None:
        await first_of(process.ready.wait(), process.ended())
        if process.ready.is_set() and process.is_running:
            self._heartbeat.add(process.worker_id)
            self._lease_guard.renew(process.pid, time.monotonic())
            self._job_types = process.job_types
            self.is_ready.set()
            log.info(
                "worker started",
                pid=process.pid,
                worker_id=str(process.worker_id),
                job_types=sorted(process.job_types),
            )

    def _orders(self, worker_id: UUID) -> Orders:
        options = self._options
        return Orders(
            app=options.app,
            worker_id=str(worker_id),
            pod=options.pod,
            queues=options.queues,
            concurrency=options.concurrency,
            lease_seconds=options.lease_seconds,
            options=options.worker,
            log_level=options.log_level,
            log_as_json=options.log_as_json,
        )

    # Releases

    async def _run_inheriting(self, worker: Worker) -> WorkerProcess:
        options = replace(self._options.worker, inherits=True, once=False, max_jobs=None)
        process = await self._start(replace(self._orders(worker.id), concurrency=1, options=options))
        await self._collect(process)
        return process

    async def _release_stragglers(self, process: WorkerProcess) -> None:
        """A claim that was under way when the process died may have been committed since."""
        await first_of(self._stopping.wait(), asyncio.sleep(_STRAGGLERS_SECONDS))
        await self._release_held(process)
        await self._recovery.retry(sweep)

    async def _release_held(self, process: WorkerProcess) -> None:
        fail = self._options.fail_on_shutdown and self._stopping.is_set()
        counts = json.dumps(process.counts) if process.counts else None
        why = process.why if process.ended_because == LEASE_LOST else SHUT_DOWN
        released = await self._recovery.retry(
            lambda c: after_shutdown(c, process.worker_id, process.started, fail=fail, counts=counts, why=why)
        )
        self._heartbeat.remove(process.worker_id)
        if self._stopping.is_set():
            self.interrupted += released or 0

    async def _recovery_deadline(self) -> None:
        await self._killed.wait()
        await asyncio.sleep(max(_RECOVERY_SECONDS, _RECOVERY_ROUND_TRIPS * self._heartbeat.round_trip_seconds))

    # Shutdown

    async def _shut_down(self) -> None:
        """Stops claiming; waits for the grace period; interrupts handlers; kills what is left."""
        await self._stopping.wait()
        log.info("stopping", grace_seconds=self._options.grace_seconds, workers=len(self._processes))
        self._send_all("stop")
        await first_of(self._all_ended(), self._at_once.wait(), asyncio.sleep(self._options.grace_seconds))
        self._send_all("interrupt")
        await first_of(self._all_ended(), self._at_once.wait(), asyncio.sleep(_INTERRUPT_SECONDS))
        self._killed.set()
        for process in self._processes:
            process.kill("the pod was shut down")

    async def _prepare_releases(self) -> None:
        await self._stopping.wait()
        await self._recovery.stand_by()

    def _send_all(self, command: str) -> None:
        for process in self._processes:
            process.send(command)

    async def _all_ended(self) -> None:
        await asyncio.gather(*(process.ended() for process in self._processes))

    # What the heartbeat and the timeouts of jobs ask for

    def _on_lease_lost(self, worker_id: UUID) -> None:
        for process in self._processes:
            if process.worker_id == worker_id:
                process.kill(LEASE_LOST)

    def _on_lease_renewed(self, worker_id: UUID, sent_at: float) -> None:
        for process in self._processes:
            if process.worker_id == worker_id:
                self._lease_guard.renew(process.pid, sent_at)

    async def _check_processes(self) -> None:
        """Ends those that a job blocks beyond its timeout, and reports those that do not respond."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            for process in self._processes:
                if process.is_running and process.overdue():
                    process.kill(BLOCKED)
                elif process.is_running and process.silence.check():
                    self._heartbeat.renew_now()

    def _is_own_child(self, pid: int) -> bool:
        is_worker = self._starting > 0 or any(process.pid == pid for process in self._processes)
        return is_worker or self._lease_guard.owns(pid)

    def _counts_of(self, worker_id: UUID) -> str | None:
        for process in self._processes:
            if process.worker_id == worker_id and process.counts:
                return json.dumps(process.report)
        return None

    @property
    def _working(self) -> list[WorkerProcess]:
        return [process for process in self._processes if process.ready.is_set() and process.is_running]
