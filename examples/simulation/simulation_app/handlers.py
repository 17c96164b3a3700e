"""The job: a simulation, whose steps are its model-days.

A model-day starts with what its model held the date before. So dates run one after the other, the models of a date in
parallel, and a model that failed on a date is skipped on the following ones, until an operator retries the job.
"""

from collections.abc import AsyncIterator
from datetime import date
from itertools import pairwise
from typing import Any

import httpx
from reactor import Context, Job, Skip, Step, Summary, fixed, lifespan, register
from sqlalchemy.ext.asyncio import async_sessionmaker

from simulation_app import market, results
from simulation_app.database import open_engine
from simulation_app.results import Portfolio
from simulation_app.runtime import isolated, open_workspace
from simulation_app.simulation import MODELS, ModelDay, Simulation


@lifespan
async def open_resources() -> AsyncIterator[dict[str, Any]]:
    engine = open_engine()
    async with httpx.AsyncClient(base_url=market.url(), timeout=20) as client:
        with open_workspace() as workspace:
            yield {"sessions": async_sessionmaker(engine), "market": client, "workspace": workspace}
    await engine.dispose()


@register("simulation", max_attempts=5, timeout_seconds=24 * 3600)
async def simulation(plan: Simulation, job: Job, ctx: Context) -> Summary:
    """J2, J3, J5, J15: each model-day has its own retries and its own timeout, and fails alone."""
    before = dict(pairwise(reversed(plan.dates)))
    groups = [[step(ctx, job.id, ModelDay(day, model), before.get(day)) for model in plan.models] for day in plan.dates]
    return await ctx.steps(groups, at_once=4, max_attempts=3, backoff=fixed(1), timeout_seconds=300)


def step(ctx: Context, job_id: int, day: ModelDay, before: date | None) -> Step:
    return Step(day.step, simulate, ctx, job_id, day, before and ModelDay(before, day.model))


async def simulate(ctx: Context, job_id: int, day: ModelDay, before: ModelDay | None) -> dict[str, str]:
    """J17: what the trading model prints is the log of its model-day."""
    portfolio = await find_portfolio(ctx, job_id, before)
    config = {
        **MODELS[day.model],
        **portfolio.model_dump(mode="json", include={"cash", "positions"}),
        "prices": await market.fetch_prices(ctx.resources["market"], day),
    }
    with isolated(ctx.resources["workspace"], config) as runtime:
        outcome = await runtime.run(ctx.log.info)
    async with ctx.resources["sessions"].begin() as session:
        day_return = await results.store(session, job_id, day, portfolio, outcome)
    return {"value": str(outcome.value), "return": str(day_return)}


async def find_portfolio(ctx: Context, job_id: int, before: ModelDay | None) -> Portfolio:
    if before is None:
        return Portfolio()
    async with ctx.resources["sessions"]() as session:
        portfolio = await results.find_portfolio(session, job_id, before)
    if portfolio is None:
        raise Skip(f"there is no result of {before.step}")
    return portfolio
