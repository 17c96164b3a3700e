"""Measures whether cost per job grows with the size of a pipeline: fan-out and fan-in of 100, 1,000 and 10,000 jobs.

Prints microseconds per job for each step, with the ratio of the largest size to the middle one (a hundred jobs finish
before caches are warm), and the duration of the query for a pipeline's state.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from reactor import Context, Job, Pipeline, Registry
from reactor.database.connection import Connection, connect
from reactor.operate import Operator, cancel_pipeline, retry_pipeline
from reactor.queries.pipelines import find_pipeline
from reactor.testing import Databases, run_until_idle, server_for_tests

SIZES = (100, 1_000, 10_000)
OPERATOR = Operator("bench", "bench")

registry = Registry()


@registry.register("start")
async def start(job: Job) -> None: ...


@registry.register("leaf")
async def leaf(job: Job) -> dict[str, int]:
    return {"n": job.payload["n"]}


@registry.register("end")
async def end(job: Job, ctx: Context) -> dict[str, int]:
    return {"leaves": len(await ctx.upstream())}


@registry.register("chains")
async def chains(job: Job, ctx: Context) -> None:
    for n in range(job.payload["size"]):
        await ctx.chain("leaf", {"n": n})


async def timed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def dag(connection: Connection, size: int) -> UUID:
    pipeline = Pipeline()
    first = pipeline.job("start")
    leaves = [pipeline.job("leaf", {"n": n}, depends_on=[first]) for n in range(size)]
    pipeline.job("end", depends_on=leaves)
    return (await pipeline.submit(connection)).id


async def measure(url: str, size: int) -> dict[str, float]:
    async with connect(url, name="bench") as connection:
        seconds: dict[str, float] = {}
        pipeline_id: UUID | None = None

        async def submit() -> None:
            nonlocal pipeline_id
            pipeline_id = await dag(connection, size)

        seconds["submit a DAG"] = await timed(submit())
        assert pipeline_id
        seconds["cancel it"] = await timed(cancel_pipeline(connection, pipeline_id, "bench", OPERATOR))
        seconds["retry it"] = await timed(retry_pipeline(connection, pipeline_id, OPERATOR))
        await connection.execute("analyze")
        seconds["run it"] = await timed(run_until_idle(url, registry, concurrency=100))
        assert (await find_pipeline(connection, pipeline_id))["state"] == "completed"
        await connection.execute(
            "insert into reactor.jobs (job_type, payload) values ('chains', jsonb_build_object('size', $1::int))", size
        )
        seconds["chain and run"] = await timed(run_until_idle(url, registry, concurrency=100))
        query: Callable[[], Awaitable[object]] = lambda: find_pipeline(connection, pipeline_id)  # noqa: E731
        seconds["its state, in one query"] = statistics.median([await timed(query()) for _ in range(20)])
        return seconds


async def main(rounds: int) -> None:
    with server_for_tests() as server:
        databases = Databases(server)
        await databases.prepare()
        results: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
        for number in range(1, rounds + 1):
            for size in SIZES:
                async with databases.clone() as url:
                    results[size].append(await measure(url, size))
                print(f"round {number}: {size} jobs done")
        await databases.remove()
    medians = {
        size: {step: statistics.median(run[step] for run in runs) for step in runs[0]} for size, runs in results.items()
    }
    print(f"\n{'microseconds per job':26}" + "".join(f"{size:>10,}" for size in SIZES) + f"{'ratio':>8}")
    for step in medians[SIZES[0]]:
        each = [medians[size][step] / size * 1e6 for size in SIZES]
        print(f"{step:26}" + "".join(f"{value:10.1f}" for value in each) + f"{each[-1] / each[1]:8.2f}")
    query = medians[SIZES[-1]]["its state, in one query"]
    print(f"the state of {SIZES[-1]:,} jobs: {query * 1e3:.1f} ms (expected: < 50)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(main(parser.parse_args().rounds))
