"""Handlers for bench/latency.py."""

import asyncio

from reactor import Context, Job, Step, Summary, register


@register("plain")
async def plain(job: Job) -> None:
    pass


@register("warm_up")
@register("transaction")
async def transaction(job: Job, ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("select 1")


@register("steps")
@register("sequence")
async def steps(job: Job, ctx: Context) -> Summary:
    groups, size = job.payload["groups"], job.payload["size"]
    return await ctx.steps([[Step(f"{g}/{n}", asyncio.sleep, 0) for n in range(size)] for g in range(groups)])


@register("long")
async def long(job: Job) -> None:
    await asyncio.sleep(600)
