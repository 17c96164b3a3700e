"""Mistakes that a type checker must report, each on its own line, and nothing else."""

import sqlite3

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

import reactor
from reactor import Context, NewJob, Pipeline, SyncContext


async def forgotten_await(connection: "asyncpg.Connection[asyncpg.Record]", session: AsyncSession) -> None:
    reactor.submit(connection, "csv.ingest")  # mistake
    reactor.submit(session, "csv.ingest")  # mistake
    reactor.submit_many(connection, [NewJob(job_type="csv.ingest")])  # mistake
    Pipeline().submit(session)  # mistake
    reactor.wait(17)  # mistake
    print(reactor.submit(connection, "csv.ingest").id)  # mistake
    print(reactor.submit_many(session, [])[0])  # mistake
    print(Pipeline().submit(connection).jobs)  # mistake


async def forgotten_await_of_other_connections(
    pool: "asyncpg.Pool[asyncpg.Record]", connection: AsyncConnection
) -> None:
    async with pool.acquire() as proxy:
        reactor.submit(proxy, "csv.ingest")  # mistake
    reactor.submit(connection, "csv.ingest")  # mistake


async def needless_await(session: Session) -> None:
    await reactor.submit(session, "csv.ingest")  # mistake
    await Pipeline().submit(session)  # mistake


async def misspelt_options(connection: "asyncpg.Connection[asyncpg.Record]", session: Session) -> None:
    await reactor.submit(connection, "csv.ingest", prioritty=3)  # mistake
    reactor.submit(session, "csv.ingest", idempotencykey="k")  # mistake
    Pipeline().job("csv.ingest", scoope="year=2026")  # mistake
    NewJob(job_type="csv.ingest", tag="nightly")  # mistake
    await reactor.wait(17, timeout=3)  # mistake
    reactor.schedule("nightly", "csv.ingest", crom="0 3 * * *")  # mistake


async def options_of_another_type(connection: "asyncpg.Connection[asyncpg.Record]", session: Session) -> None:
    await reactor.submit(connection, "csv.ingest", priority="high")  # mistake
    reactor.submit(session, "csv.ingest", run_after="tomorrow")  # mistake
    reactor.submit(session, "csv.ingest", ["a.csv"])  # mistake
    Pipeline().job("csv.ingest", exclusive="yes")  # mistake
    await reactor.wait("17")  # mistake
    reactor.schedule("nightly", "csv.ingest", every="day")  # mistake


async def wrong_names(connection: "asyncpg.Connection[asyncpg.Record]", session: Session) -> None:
    submitted = await reactor.submit(connection, "csv.ingest")
    print(submitted.job_id)  # mistake
    print(reactor.submit(session, "csv.ingest").state)  # mistake
    print(submitted.outcome == "exists")  # mistake
    print((await reactor.wait(submitted.id)).outcome)  # mistake


async def unknown_drivers(connection: sqlite3.Connection) -> None:
    reactor.submit(connection, "csv.ingest")  # mistake
    reactor.submit_many("postgresql:///", [])  # mistake


@reactor.register("csv.ingest", max_attempt=3)  # mistake
async def in_a_handler(ctx: Context) -> None:
    ctx.chain("report.write")  # mistake
    await ctx.chain("report.write", scoope="year=2026")  # mistake
    await ctx.chain("report.write", priority="high")  # mistake
    ctx.progress(0.5)  # mistake
    await reactor.chain_job(ctx, "report.write", queues="slow")  # mistake


@reactor.register("report.print")
def in_a_plain_handler(ctx: SyncContext) -> None:
    ctx.chain("report.write", scoope="year=2026")  # mistake
    ctx.chain("report.write", max_attempts="3")  # mistake
