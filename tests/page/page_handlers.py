"""Handlers for the browser tests and screenshots. The payload sets their duration."""

import asyncio
import random
from typing import Any

from reactor import Context, Fail, Job, Partial, Retry, Step, Summary, register


def seconds(job: Job) -> float:
    return float(job.payload.get("seconds", 0))


@register("fetch.weather")
async def fetch(job: Job, ctx: Context) -> dict[str, Any]:
    await _advance(ctx, seconds(job), "stations read")
    return {"stations": 412}


@register("forecast.region")
async def forecast(job: Job, ctx: Context) -> dict[str, Any]:
    """Fails as often as its payload says, then succeeds."""
    if job.attempts <= int(job.payload.get("failures", 0)):
        raise Retry(job.payload.get("error", "The solver did not converge after 200 iterations."), after=0.2)
    await _advance(ctx, seconds(job), "hours computed")
    return {"region": job.payload.get("region")}


@register("forecast.publish")
async def publish(job: Job, ctx: Context) -> dict[str, Any]:
    await _advance(ctx, seconds(job), "files written")
    return {"files": 24}


@register("simulate.year")
async def simulate(job: Job, ctx: Context) -> Summary:
    days, models, broken = job.payload["days"], job.payload["models"], set(job.payload.get("broken", ()))
    slow = set(job.payload.get("slow", ()))

    async def run(name: str) -> dict[str, Any]:
        await asyncio.sleep(90 if name in slow else seconds(job))
        if name in broken:
            raise ValueError(f"no boundary values for {name}: the file of the day before is missing")
        return {"tonnes": len(name)}

    names = [[f"{day}/{model}" for model in models] for day in days]
    plan = [[Step(name, run, name) for name in group] for group in names]
    return await ctx.steps(plan, at_once=2, max_attempts=int(job.payload.get("runs", 1)), backoff=3600)


@register("partly")
async def partly(job: Job) -> Partial:
    return Partial({"files": 3}, "3 of 4 files were readable")


@register("say")
async def say(job: Job, ctx: Context) -> None:
    """Puts the text of its payload into a message, step names and an error."""
    text = job.payload["text"]
    await ctx.progress(0.5, text)
    await ctx.steps([[Step(f"{text}/a", _do_nothing), Step(f"{text}/b", _do_nothing)]])
    raise Fail(text)


@register("check.station", max_attempts=1)
async def check(job: Job) -> None:
    await asyncio.sleep(random.lognormvariate(-3.5, 0.8))
    if job.payload.get("failures"):
        raise Fail("The station did not answer.")


@register("talk", max_attempts=3)
async def talk(job: Job, ctx: Context) -> Summary:
    """Logs what its payload says in two steps. Fails once, and waits until its meta says that it may end."""
    text = job.payload.get("text", "talking")
    ctx.log.info(text, attempt=job.attempts, **{text[:50]: text})
    if job.attempts == 1 and not job.payload.get("once"):
        try:
            raise ValueError("the station does not answer")
        except ValueError:
            ctx.log.exception("reading failed")
        raise Retry(after=0.1)

    async def step(name: str) -> None:
        ctx.log.warning(f"in {name}")
        for number in range(int(job.payload.get("lines", 0))):
            ctx.log.info(f"{name} line {number}")

    summary = await ctx.steps([[Step(f"day/{name}", step, name)] for name in ("alps", "baltic")])
    while job.payload.get("waits") and not (await ctx.meta()).get("may_end"):
        await asyncio.sleep(0.1)
    ctx.log.critical("last words")
    return summary


@register("noop")
async def noop() -> None:
    pass


async def _do_nothing() -> None:
    pass


async def _advance(ctx: Context, total: float, unit: str) -> None:
    parts = max(1, int(total * 5))
    for part in range(parts):
        await ctx.progress(part / parts, f"{part} of {parts} {unit}")
        await asyncio.sleep(total / parts)
