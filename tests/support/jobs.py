"""Inserts, claims and settles jobs directly, without a pod."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from reactor.database.connection import Connection
from reactor.job import Job
from reactor.lifecycle import claim as claims
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Ending, Outcome

Row = Callable[[int], Awaitable[dict[str, Any]]]
"""The fixture `row`: a job's row by its id."""


async def insert(
    connection: Connection, job_type: str | None = "work", *, after: list[int] | None = None, **columns: Any
) -> int:
    """Inserts a job that depends on the jobs `after`, and returns its id."""
    columns = {"job_type": job_type} | columns
    names, parameters = ", ".join(columns), ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    statement = f"insert into reactor.jobs ({names}) values ({parameters}) returning id"
    async with connection.transaction():
        job_id: int = await connection.fetchval(statement, *columns.values())
        await connection.executemany(
            "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)",
            [(job_id, other) for other in after or []],
        )
    return job_id


async def claim(connection: Connection, worker: Worker, job_id: int) -> Job:
    job = await claim_one(connection, worker, job_id)
    assert job, f"job {job_id} can't be claimed"
    return job


async def run(connection: Connection, worker: Worker, job_id: int, outcome: Outcome) -> None:
    """Claims a job and settles it with the outcome."""
    job = await claim(connection, worker, job_id)
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome)])


async def has_state(row: Row, job_id: int, state: str) -> bool:
    return bool((await row(job_id))["state"] == state)


async def has_ended(row: Row, job_id: int) -> bool:
    return (await row(job_id))["finished_at"] is not None


async def claimed(connection: Connection, worker: Worker, count: int) -> dict[int, UUID]:
    """Inserts and claims this number of jobs, and returns their attempts."""
    await connection.execute(
        "insert into reactor.jobs (job_type) select 'work' from generate_series(1, $1::int)", count
    )
    return {job.id: job.attempt_id for job in await claims.claim(connection, worker, count)}


async def history(connection: Connection) -> list[tuple[int, str]]:
    """The jobs and outcomes of all attempts that have ended."""
    rows = await connection.fetch("select job_id, outcome from reactor.attempts order by 1, ended_at")
    return [(row["job_id"], row["outcome"]) for row in rows]


async def hold_back_completions(connection: Connection) -> None:
    """As another transaction that has locked the rows would."""
    await connection.execute(
        """
        create function hold_back() returns trigger language plpgsql as
            $$ begin raise exception 'held back' using errcode = 'lock_not_available'; end $$;
        create trigger hold_back before update on reactor.jobs
            for each row when (new.state = 'completed') execute function hold_back();
        """
    )
