"""Releases the claims of a worker whose attempts did not finish their jobs: after a crash, or a shutdown."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Literal
from uuid import UUID

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.job import JobState
from reactor.log import get_logger

log = get_logger(__name__)

Release = Literal["released", "crashed", "culprit", "unstarted"]
"""By a shutdown; with its process; with its process, and known to be the cause, so that it is charged; never started.
`sql/schema/functions/settle.sql` has the rules."""
SHUT_DOWN = "The pod was shut down while it ran."
MAY_HAVE_RUN = "The handler may have run to its end."
"""Of every attempt that had started: that its end was not written does not mean that it had none."""
_LOCK_WAIT_MS = 250
_LOCKED_PAUSE_SECONDS = 0.2
_FAILED = f"Worker received SIGTERM: the pod was shut down while this job ran. {MAY_HAVE_RUN}"


async def after_crash(
    connection: Connection, worker_id: UUID, started: Collection[UUID], causes: Mapping[UUID, str], why: str
) -> dict[int, UUID]:
    """Releases started jobs without charging an attempt: one of them may have killed the process, but which?

    `causes`: attempts that are known to have ended the process, and how. Those are charged. Returns the suspects, which
    ran in an earlier crash too. They stay held, to be run again in quarantine.
    """
    unstarted, running = await _held_by(connection, worker_id, started)
    releases: list[tuple[dict[int, UUID], Release, str | None]] = [(unstarted, "unstarted", None)]
    for cause in set(causes.values()):
        culprits = {job_id: attempt_id for job_id, attempt_id in running.items() if causes.get(attempt_id) == cause}
        releases.append((culprits, "culprit", cause))
    others = {job_id: attempt_id for job_id, attempt_id in running.items() if attempt_id not in causes}
    crashed_before = {record["id"] for record in await connection.fetch(statements.CRASHED_BEFORE, list(others))}
    suspects = {job_id: others.pop(job_id) for job_id in crashed_before}
    releases.append((others, "crashed", why))
    # Only a job whose row another transaction has locked waits for that one.
    locked = [one for one in releases if not await _release_unlocked(connection, *one)]
    for claims, outcome, reason in locked:
        await release(connection, claims, outcome=outcome, why=reason)
    log.warning(
        "jobs of a dead worker process released",
        unstarted=len(unstarted),
        started=sorted(others),
        charged=sorted(running.keys() - others.keys() - suspects.keys()),
        quarantined=sorted(suspects),
    )
    return suspects


async def _release_unlocked(connection: Connection, claims: dict[int, UUID], outcome: Release, why: str | None) -> bool:
    """False: some are locked."""
    try:
        await release(connection, claims, outcome=outcome, why=why, lock_wait_ms=_LOCK_WAIT_MS)
    except asyncpg.LockNotAvailableError:
        if len(claims) > 1:
            for job_id, attempt_id in claims.items():
                await _release_unlocked(connection, {job_id: attempt_id}, outcome, why)
        return False
    return True


async def _held_by(
    connection: Connection, worker_id: UUID, started: Collection[UUID]
) -> tuple[dict[int, UUID], dict[int, UUID]]:
    """The jobs that the worker holds: unstarted and started ones."""
    unstarted: dict[int, UUID] = {}
    running: dict[int, UUID] = {}
    for job_id, attempt_id in (await held(connection, worker_id)).items():
        (running if attempt_id in started else unstarted)[job_id] = attempt_id
    return unstarted, running


async def held(connection: Connection, worker_id: UUID) -> dict[int, UUID]:
    """The claims of the worker according to the database: job → attempt."""
    return {
        record["id"]: record["attempt_id"] for record in await connection.fetch(statements.HELD_ATTEMPTS, worker_id)
    }


async def release(
    connection: Connection,
    claims: dict[int, UUID],
    *,
    outcome: Release,
    why: str | None,
    lock_wait_ms: int | None = None,
) -> dict[int, JobState]:
    """Releases attempts that can't continue. A job that is missing was not the attempt's any more."""
    if not claims:
        return {}
    job_ids = sorted(claims)
    records = await connection.fetch(
        statements.SETTLE,
        job_ids,
        [claims[job_id] for job_id in job_ids],
        [outcome] * len(job_ids),
        None,
        [why] * len(job_ids),
        None,
        None,
        None,
        lock_wait_ms,
    )
    return {record["id"]: JobState(record["state"]) for record in records}


async def release_unstarted(connection: Connection, unstarted: dict[int, UUID]) -> None:
    """Claimed and never started: as if they had not been claimed."""
    await release(connection, unstarted, outcome="unstarted", why=None)


async def after_shutdown(
    connection: Connection,
    worker_id: UUID,
    started: Collection[UUID],
    *,
    fail: bool,
    counts: str | None = None,
    why: str = SHUT_DOWN,
) -> int:
    """Releases started jobs without charging an attempt, or fails them. Returns how many.

    `counts`: all that the worker has done, as JSON, to be stored with it.
    """
    outcome, error = ("failed", _FAILED) if fail else ("released", f"{why} {MAY_HAVE_RUN}")
    interrupted: list[int] = []
    while True:
        records = await connection.fetch(statements.RELEASE_WORKER, worker_id, list(started), outcome, error, counts)
        interrupted += [record["id"] for record in records if record["id"] is not None]
        if all(record["id"] is not None for record in records):
            break
        await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
    if interrupted:
        log.warning("jobs interrupted", why=why, jobs=interrupted, became="failed" if fail else "pending")
    return len(interrupted)
