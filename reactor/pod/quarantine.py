"""Finds the job that kills its worker process: suspects run again one at a time, in a process of their own."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.lifecycle.release import held, release
from reactor.log import get_logger
from reactor.pod.heartbeat import Heartbeat
from reactor.pod.recovery import Recovery
from reactor.pod.worker_process import WorkerProcess

log = get_logger(__name__)

Held = Mapping[int, UUID]


class Quarantine:
    """For jobs that ran while more than one process died. A job that kills the process in which it runs alone is the
    culprit, and only it is charged. It stays here until it ends or has no attempt left; the others are released."""

    def __init__(
        self,
        recovery: Recovery,
        heartbeat: Heartbeat,
        lease_seconds: float,
        *,
        is_stopping: Callable[[], bool],
        run_process: Callable[[Worker], Awaitable[WorkerProcess]],
        release_held: Callable[[WorkerProcess], Awaitable[None]],
    ) -> None:
        """`run_process`: starts a process that runs what was handed over to the worker, and returns when it ended."""
        self._recovery = recovery
        self._heartbeat = heartbeat
        self._lease_seconds = lease_seconds
        self._is_stopping = is_stopping
        self._run_process = run_process
        self._release_held = release_held

    async def admit(self, worker: Worker, jobs: Held, why: str, *, charged: bool = False) -> bool:
        """Hands the jobs over to `worker`. False: none is left to run."""
        operation = partial(
            hand_over, worker=worker, lease_seconds=self._lease_seconds, jobs=jobs, why=why, charged=charged
        )
        if not await self._recovery.retry(operation):
            return False
        self._heartbeat.add(worker.id)
        log.warning("quarantine", jobs=sorted(jobs), worker_id=str(worker.id))
        return True

    async def run(self, worker: Worker) -> None:
        """Until every job that was handed over has ended, or is released."""
        next_worker: Worker | None = worker
        while next_worker is not None:
            worker, next_worker = next_worker, None
            process = await self._run_process(worker)
            if process.was_killed_by_a_job and process.started and not self._is_stopping():
                left = await self._recovery.retry(partial(held, worker_id=worker.id)) or {}
                culprits = {job_id: attempt_id for job_id, attempt_id in left.items() if attempt_id in process.started}
                successor = Worker(worker.pod, worker.job_types, worker.queues, worker.capacity)
                if await self.admit(successor, culprits, process.why_alone, charged=True):
                    next_worker = successor
            # The culprit is known, so the others are no suspects any more.
            await self._release_held(process)


async def hand_over(
    connection: Connection, worker: Worker, lease_seconds: float, jobs: Held, why: str, *, charged: bool
) -> bool:
    """Moves attempts of a dead process to a worker that runs one job at a time. Returns whether there are any.

    `charged`: each is charged an attempt, and fails if it has none left.
    """
    await register_worker(connection, worker, lease_seconds)
    job_ids = sorted(jobs)
    attempt_ids = [jobs[job_id] for job_id in job_ids]
    records = await connection.fetch(statements.HAND_OVER, job_ids, attempt_ids, worker.id, why, charged)
    left = {job_id: jobs[job_id] for job_id in jobs.keys() - {record["id"] for record in records}}
    if charged and left:
        await release(connection, left, outcome="culprit", why=f"{why} It has no attempt left.")
        log.error("job failed: it killed its process in every attempt", jobs=sorted(left))
    if not records:
        await retire_worker(connection, worker.id)
    return bool(records)
