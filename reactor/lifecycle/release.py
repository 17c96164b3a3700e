"""What a worker holds, and the release of claims whose attempts did not finish their job."""

from typing import Literal
from uuid import UUID

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.job import JobState

Release = Literal["released", "crashed", "culprit", "unstarted"]
"""By a shutdown; with its process; with its process, and known to be the cause, so that it is charged; never started.
`sql/schema/functions/settle.sql` has the rules."""


async def held(connection: Connection, worker_id: UUID) -> dict[int, UUID]:
    """The claims of the worker according to the database: job → attempt."""
    return {
        record["id"]: record["attempt_id"] for record in await connection.fetch(statements.HELD_ATTEMPTS, worker_id)
    }


async def release_unstarted(connection: Connection, unstarted: dict[int, UUID]) -> None:
    """Claimed and never started: as if they had not been claimed."""
    await release(connection, unstarted, outcome="unstarted", why=None)


async def release(
    connection: Connection, claims: dict[int, UUID], *, outcome: Release, why: str | None
) -> dict[int, JobState]:
    """Releases attempts that can't continue. A job that is missing was not the attempt's any more."""
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
        None,
    )
    return {record["id"]: JobState(record["state"]) for record in records}
