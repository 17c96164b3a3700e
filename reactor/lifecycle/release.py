"""Releases claims whose attempts did not finish their job."""

from collections.abc import Sequence
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.job import JobState


async def release(
    connection: Connection, held: dict[int, UUID], *, outcome: str, why: str, free: bool
) -> dict[int, JobState]:
    """Releases attempts that can't continue; `outcome` is `released` or `crashed`. `free`: not charged an attempt."""
    records = await connection.fetch(
        statements.RELEASE, sorted(held), [held[job_id] for job_id in sorted(held)], outcome, why, free
    )
    return {record["id"]: JobState(record["state"]) for record in records}


async def release_unstarted(connection: Connection, unstarted: dict[int, UUID]) -> None:
    """Claimed and never started: as if they had not been claimed."""
    job_ids = sorted(unstarted)
    await connection.execute(statements.RELEASE, job_ids, [unstarted[job_id] for job_id in job_ids], None, None, True)


async def stopped(connection: Connection, worker_id: UUID, job_ids: Sequence[int]) -> None:
    """The handlers of these jobs, which were taken from the worker, have stopped: their scopes are free."""
    await connection.execute(statements.RELEASE_STOPPED, worker_id, sorted(job_ids))
