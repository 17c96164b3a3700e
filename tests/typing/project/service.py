"""A service that submits jobs with asyncpg and with SQLAlchemy."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

import asyncpg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

import reactor
from reactor import Finished, JobOptions, JobState, NewJob, Pipeline, Submitted, SubmittedPipeline


async def by_asyncpg(url: str) -> Submitted:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        submitted = await reactor.submit(connection, "csv.ingest", {"file": "a.csv"}, queue="slow", max_attempts=2)
    await connection.close()
    return submitted


async def by_a_pool(pool: "asyncpg.Pool[asyncpg.Record]", pipeline_id: UUID) -> list[int]:
    async with pool.acquire() as connection:
        first = await reactor.submit(connection, "csv.ingest", pipeline_id=pipeline_id)
        jobs = [NewJob(job_type="csv.ingest", payload={"n": n}, timeout_seconds=2.5) for n in range(3)]
        others = await reactor.submit_many(connection, jobs)
    return [first.id, *(other.id for other in others)]


async def by_async_session(session: AsyncSession) -> Submitted:
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    return await reactor.submit(session, "csv.ingest", {"file": "a.csv"}, run_after=in_an_hour)


async def by_async_connection(connection: AsyncConnection) -> list[Submitted]:
    return await reactor.submit_many(connection, [NewJob(job_type="csv.ingest", scope="s", exclusive=True)])


def by_session(session: Session) -> int:
    submitted = reactor.submit(session, "csv.ingest", {"file": "a.csv"}, scope="year=2026", exclusive=True)
    if submitted.outcome == "busy":
        print(f"job {submitted.id} of pipeline {submitted.pipeline_id.hex} has the scope")
    return submitted.id


def by_connection(connection: sqlalchemy.Connection) -> list[Submitted]:
    return reactor.submit_many(connection, [NewJob(job_type="csv.ingest")])


def plan() -> Pipeline:
    pipeline = Pipeline()
    read = pipeline.job("csv.ingest", {"file": "a.csv"}, idempotency_key="a.csv")
    years = [pipeline.job("report.write", {"year": year}, depends_on=[read], priority=5) for year in (2024, 2025)]
    pipeline.job("report.print", after_end_of=years, tags=("paper",))
    return pipeline


async def all_at_once(connection: "asyncpg.Connection[asyncpg.Record]", session: Session) -> list[int]:
    submitted = await plan().submit(connection)
    again: SubmittedPipeline = plan().submit(session)
    return submitted.jobs + again.jobs


async def enqueue(
    session: AsyncSession, job_type: str, payload: Mapping[str, Any], **options: Unpack[JobOptions]
) -> Submitted:
    """A wrapper passes the options on, and its callers keep their names and types."""
    return await reactor.submit(session, job_type, payload, **options)


async def wait_for(session: AsyncSession, url: str) -> dict[str, Any] | None:
    submitted = await enqueue(session, "csv.ingest", {"file": "a.csv"}, priority=3, idempotency_key="k")
    await session.commit()
    finished: Finished = await reactor.wait(submitted.id, url, timeout_seconds=10)
    return finished.result if finished.state is JobState.COMPLETED else None
