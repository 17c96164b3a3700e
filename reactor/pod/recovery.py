"""Puts the database in order after a worker process: what it held goes back, and its lease ends."""

from collections.abc import Collection, Mapping
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker, held, register_worker, retire_worker
from reactor.lifecycle.release import release, release_unstarted
from reactor.lifecycle.settle import settle
from reactor.log import get_logger
from reactor.outcome import Ending, Failed

log = get_logger(__name__)

Held = Mapping[int, UUID]


async def after_shutdown(
    connection: Connection, worker_id: UUID, begun: Collection[UUID], *, fail: bool, counts: str | None = None
) -> int:
    """What had begun is released at no cost, or failed. Returns how many jobs that were.

    `counts`: what the worker has done in all, as JSON, for who looks at it later.
    """
    unbegun, interrupted = await _sort(connection, worker_id, begun)
    await release_unstarted(connection, unbegun)
    if fail:
        failure = Failed("Worker received SIGTERM: the pod was shut down while this job ran.")
        await settle(connection, [Ending(job_id, attempt_id, failure) for job_id, attempt_id in interrupted.items()])
    else:
        await release(connection, interrupted, outcome="released", why="The pod was shut down while it ran.", free=True)
    await retire_worker(connection, worker_id, counts)
    if interrupted:
        log.warning(
            "jobs interrupted by the shutdown", jobs=sorted(interrupted), became="failed" if fail else "pending"
        )
    return len(interrupted)


async def after_crash(
    connection: Connection, worker_id: UUID, begun: Collection[UUID], blamed: Mapping[UUID, str], why: str
) -> dict[int, UUID]:
    """What had begun goes back at no cost, too: one of them may have killed the process, but which?

    Those that are blamed for it pay. Returns those that ran before when a process died: they are still held, to be run
    again where they can harm nobody but themselves.
    """
    unbegun, running = await _sort(connection, worker_id, begun)
    await release_unstarted(connection, unbegun)
    for deed in set(blamed.values()):
        guilty = {job_id: attempt_id for job_id, attempt_id in running.items() if blamed.get(attempt_id) == deed}
        await release(connection, guilty, outcome="crashed", why=deed, free=False)
    others = {job_id: attempt_id for job_id, attempt_id in running.items() if attempt_id not in blamed}
    again = {record["id"] for record in await connection.fetch(statements.CRASHED_BEFORE, list(others))}
    suspects = {job_id: others.pop(job_id) for job_id in again}
    await release(connection, others, outcome="crashed", why=why, free=True)
    log.warning(
        "jobs of a dead worker process put back",
        unbegun=len(unbegun),
        begun=sorted(others),
        blamed=sorted(running.keys() - others.keys() - suspects.keys()),
        quarantined=sorted(suspects),
    )
    return suspects


async def into_quarantine(
    connection: Connection, worker: Worker, lease_seconds: float, jobs: Held, why: str, *, charged: bool
) -> bool:
    """Attempts of a dead process go on under a worker that runs one job at a time. Tells whether there are any.

    What is charged with the death costs an attempt, and has failed once none is left.
    """
    await register_worker(connection, worker, lease_seconds)
    job_ids = sorted(jobs)
    attempt_ids = [jobs[job_id] for job_id in job_ids]
    records = await connection.fetch(statements.HAND_OVER, job_ids, attempt_ids, worker.id, why, charged)
    left = {job_id: jobs[job_id] for job_id in jobs.keys() - {record["id"] for record in records}}
    if charged and left:
        await release(connection, left, outcome="crashed", why=f"{why} It has no attempt left.", free=False)
        log.error("job failed: it killed its process in every attempt", jobs=sorted(left))
    if not records:
        await retire_worker(connection, worker.id)
    return bool(records)


async def _sort(
    connection: Connection, worker_id: UUID, begun: Collection[UUID]
) -> tuple[dict[int, UUID], dict[int, UUID]]:
    """What the worker holds: what had not begun, and what had."""
    unbegun: dict[int, UUID] = {}
    running: dict[int, UUID] = {}
    for job_id, attempt_id in (await held(connection, worker_id)).items():
        (running if attempt_id in begun else unbegun)[job_id] = attempt_id
    return unbegun, running
