"""A service that submits jobs with psycopg, of both kinds."""

import psycopg
from psycopg.rows import DictRow

import reactor
from reactor import NewJob, Pipeline, Submitted, SubmittedPipeline


def by_psycopg(url: str) -> Submitted:
    with psycopg.connect(url) as connection:
        return reactor.submit(connection, "csv.ingest", {"file": "a.csv"}, priority=1)


def with_other_rows(connection: psycopg.Connection[DictRow]) -> list[Submitted]:
    return reactor.submit_many(connection, [NewJob(job_type="csv.ingest")])


async def by_async_psycopg(url: str) -> list[int]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        submitted = await reactor.submit(connection, "csv.ingest", {"file": "a.csv"}, tags=["nightly"])
        others = await reactor.submit_many(connection, [NewJob(job_type="csv.ingest")])
    return [submitted.id, *(other.id for other in others)]


async def pipelines(
    connection: psycopg.Connection, async_connection: psycopg.AsyncConnection
) -> tuple[SubmittedPipeline, SubmittedPipeline]:
    pipeline = Pipeline()
    pipeline.job("csv.ingest")
    return pipeline.submit(connection), await pipeline.submit(async_connection)
