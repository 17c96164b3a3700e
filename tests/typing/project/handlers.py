"""Handlers of both kinds, with everything that a handler is given."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
from pydantic import BaseModel
from sqlalchemy import text

import reactor
from reactor import Child, Context, Fail, Job, Partial, Retry, Snooze, Step, Summary, SyncContext, register


class Report(BaseModel):
    year: int
    sections: list[str] = []


@reactor.lifespan
async def resources() -> AsyncIterator[dict[str, Any]]:
    yield {"prices": {"wheat": 1.5}}


@reactor.around
async def traced(job: Job, ctx: Context) -> AsyncIterator[None]:
    ctx.log.info("started", attempts=job.attempts)
    yield


@register("csv.ingest", max_attempts=5, timeout_seconds=600, backoff=reactor.exponential(2, limit_seconds=60))
async def ingest(job: Job, ctx: Context) -> dict[str, Any]:
    async with ctx.transaction() as connection:
        rows: int = await connection.fetchval("select count(*) from incoming where file = $1", job.payload["file"])
        await connection.execute("delete from incoming where file = $1", job.payload["file"])
        first: Child = await ctx.chain("report.write", {"rows": rows}, tags=["nightly"], priority=-1)
        await ctx.chain("report.print", depends_on=[first], inherit=["queue", "scope"], scope=f"job={job.id}")
        await ctx.meta(rows=rows)
        await reactor.submit(connection, "audit.note", {"rows": rows}, idempotency_key=f"note-{job.id}")
    await ctx.progress(0.5, "half of it")
    return {"rows": rows, "price": ctx.resources["prices"]["wheat"]}


@register("report.write")
async def write_report(report: Report, ctx: Context) -> Summary | Partial | None:
    if report.year > 2100:
        raise Fail("that year is far away", result={"year": report.year}, keep_data=True)
    if not report.sections:
        return None
    title: str = await ctx.step("title", write_title, report.year)
    async with ctx.session() as session:
        await session.execute(text("insert into titles values (:title)"), {"title": title})
    summary = await ctx.steps([[Step(name, write_section, name) for name in report.sections]], at_once=2)
    if summary.errors:
        return Partial({"written": summary.counts["completed"]}, "some sections are missing")
    return summary


def write_title(year: int) -> str:
    return f"The year {year}"


async def write_section(name: str) -> int:
    return len(name)


@register("report.print", backoff=timedelta(minutes=1))
def print_report(job: Job, ctx: SyncContext) -> dict[str, Any]:
    for upstream in ctx.upstream():
        ctx.log.info("waited for", job_id=upstream.id)
    if job.attempts > 2:
        raise Retry("the printer is out of paper", after=timedelta(minutes=5))
    if ctx.cancelled:
        raise Snooze(30)
    with ctx.transaction() as connection:
        connection.execute("insert into printed values ($1)", job.id)
        ctx.chain("report.archive", run_after=job.created_at + timedelta(days=1))
    pages: int = ctx.step("pages", len, "abc")
    return {"pages": pages}


reactor.schedule("nightly", "csv.ingest", cron="0 3 * * *", timezone="Europe/Vienna", payload={"file": "a.csv"})
reactor.schedule("often", "csv.ingest", every=timedelta(minutes=5), scope="often", exclusive=True)


async def run_beside_the_application(url: str, job_id: int) -> reactor.JobState | None:
    async with reactor.Reactor(url, concurrency=4, queues=["default"]) as running:
        return await running.run_job(job_id)


async def read(pool: "asyncpg.Pool[asyncpg.Record]") -> list[str]:
    return [row["name"] for row in await pool.fetch("select name from files")]
