"""A demo pipeline: reads a file, computes each year, and aggregates the results.

`reactor up` runs it unless another app is given: `reactor up --app your.handlers`.
"""

import asyncio
import random
from typing import Any

from reactor.client.pipeline import Pipeline
from reactor.database.connection import Connection
from reactor.handlers.context import Context
from reactor.handlers.registry import register
from reactor.job import Job

YEARS = (2024, 2025, 2026)


@register("demo.ingest", timeout_seconds=60)
async def ingest(job: Job, ctx: Context) -> dict[str, Any]:
    """Pretends to read a file and reports its progress."""
    rows = int(job.payload.get("rows", 1000))
    chunk = max(1, rows // 20)
    for start in range(0, rows, chunk):
        await asyncio.sleep(0.1)
        done = min(start + chunk, rows)
        await ctx.progress(done / rows, f"{done} of {rows} rows read")
    return {"rows": rows}


@register("demo.recalculate", max_attempts=5, backoff=0.5, timeout_seconds=60)
async def recalculate(job: Job, ctx: Context) -> dict[str, Any]:
    """Computes one year. Fails occasionally, to demonstrate retries."""
    for step in range(10):
        await ctx.progress(step / 10, f"month {step + 1} of {job.payload['year']}")
        await asyncio.sleep(0.1)
        if job.attempts < 3 and random.random() < 0.03:
            raise RuntimeError(f"the figures of {job.payload['year']} do not add up")
    return {"year": job.payload["year"], "tonnes": random.randint(100, 900)}


@register("demo.aggregate")
async def aggregate(job: Job, ctx: Context) -> dict[str, Any]:
    """Runs after all years and aggregates them."""
    await ctx.progress(0.5, "aggregating")
    await asyncio.sleep(0.3)
    return {"years": list(YEARS)}


@register("demo.hello")
async def hello(job: Job, ctx: Context) -> dict[str, Any]:
    """A first job to insert from psql."""
    name = job.payload.get("name", "world")
    await ctx.progress(1, f"Hello, {name}!")
    ctx.log.info("hello", name=name)
    return {"greeting": f"Hello, {name}!"}


async def submit_demo(connection: Connection) -> str:
    """Submits the whole pipeline in one transaction. Returns its id."""
    pipeline = Pipeline()
    first = pipeline.job("demo.ingest", {"rows": 2000})
    years = [
        pipeline.job("demo.recalculate", {"year": year}, depends_on=[first], scope=f"demo/year={year}")
        for year in YEARS
    ]
    pipeline.job("demo.aggregate", depends_on=years)
    return str((await pipeline.submit(connection)).id)
