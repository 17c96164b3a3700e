"""Measures limits and fairness: how much of what a limit allows is used, how exact rates are, how long a lane with few
jobs waits beside one with many, and what claims cost beside jobs that limits hold back.

Eight pods are eight claim loops in this process, with connections of their own and without polls.
"""

import argparse
import asyncio
import logging
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from bench.backend import Backend, Cost, Schema, server
from reactor import Context, Job, Registry
from reactor.database.connection import Connection, connect
from reactor.lifecycle.lease import Worker, register_worker
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.options import WorkerOptions

Figures = dict[str, float]
PODS = 8
GOALS = {
    "one type, of the possible use": "> 0.95",
    "one type, of the possible use, a pod killed each second": "> 0.95",
    "50 lanes, of the possible use": "> 0.95",
    "50 lanes, of the possible use, a pod killed each second": "> 0.95",
    "5/s, of the allowed starts": "0.99 to 1.01",
    "100/s, of the allowed starts": "0.99 to 1.01",
    "1000/s, of the allowed starts": "0.99 to 1.01",
    "a lane of 10 beside one of 100,000, of its share": "< 2",
    "beside 100,000 of a full queue, of an empty one": "< 1.3",
    "beside 100,000 in 1,000 full lanes, of an empty one": "< 1.3",
    "beside limits elsewhere, of none": "< 1.03",
}


class Pods:
    def __init__(self, url: str, registry: Registry, capacity: int, tasks: asyncio.TaskGroup) -> None:
        self._url = url
        self._registry = registry
        self._capacity = capacity
        self._tasks = tasks
        self._running: list[tuple[ClaimLoop, asyncio.Task[None]]] = []

    async def start(self) -> None:
        worker = Worker(f"pod-{len(self._running)}", self._registry.job_types, capacity=self._capacity)
        async with connect(self._url, name="bench") as connection:
            await register_worker(connection, worker, 3600)
        options = WorkerOptions(url=self._url, listen_url=self._url, poll_seconds=0)
        loop = ClaimLoop(options, self._registry, worker)
        self._running.append((loop, self._tasks.create_task(loop.run())))

    async def replace_one(self, connection: Connection) -> None:
        """Kills the oldest pod, takes back its jobs as the supervisor of a dead process does, and starts another."""
        loop, task = self._running.pop(0)
        loop.interrupt()
        await task
        await connection.execute(
            "update reactor.workers set lease_until = clock_timestamp() - interval '1 hour' where id = $1",
            loop.worker.id,
        )
        await connection.execute("select reactor.expire_workers()")
        await connection.execute("select reactor.sweep(1000)")
        await self.start()

    def interrupt(self) -> None:
        for loop, _ in self._running:
            loop.interrupt()


@asynccontextmanager
async def pods(url: str, registry: Registry, capacity: int) -> AsyncIterator[Pods]:
    async with AsyncExitStack() as stack:
        started = Pods(url, registry, capacity, await stack.enter_async_context(asyncio.TaskGroup()))
        stack.callback(started.interrupt)
        for _ in range(PODS):
            await started.start()
        yield started


class Use:
    """The share of a limit's places that is in use while more jobs wait."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.most: Counter[str | None] = Counter()
        self._running: Counter[str | None] = Counter()
        self._busy = 0.0
        self._chance = random.Random(1)
        self.registry.register("work", max_attempts=1000)(self.work)

    async def work(self, job: Job, ctx: Context) -> None:
        lane = job.payload.get("lane")
        self._running[lane] += 1
        self.most[lane] = max(self.most[lane], self._running[lane])
        started = time.perf_counter()
        try:
            await asyncio.sleep(self._chance.uniform(0.05, 0.35))
        finally:
            self._busy += time.perf_counter() - started
            self._running[lane] -= 1

    async def measure(
        self, schema: Schema, options: argparse.Namespace, limit: str, lanes: int, places: int, *, kills: bool
    ) -> float:
        async with schema.clone() as url, connect(url, name="bench") as connection:
            await connection.execute(limit)
            await connection.execute(
                "insert into reactor.jobs (job_type, lane, payload) select 'work', lane, "
                "jsonb_strip_nulls(jsonb_build_object('lane', lane)) from (select "
                "case when $1::int > 0 then 'lane ' || i % $1::int end as lane from generate_series(1, 20000) i) l",
                lanes,
            )
            async with pods(url, self.registry, capacity=10) as running:
                await asyncio.sleep(1)
                before, started = self._busy, time.perf_counter()
                while time.perf_counter() < started + options.seconds:
                    await asyncio.sleep(1)
                    if kills:
                        await running.replace_one(connection)
                return (self._busy - before) / (time.perf_counter() - started) / places


async def concurrency(schema: Schema, options: argparse.Namespace) -> Figures:
    of_type = "insert into reactor.limits (job_type, max_running) values ('work', 20)", 0, 20
    of_lanes = "insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 1)", 50, 50
    figures: Figures = {}
    for kills in (False, True):
        suffix = ", a pod killed each second" if kills else ""
        one, each = Use(), Use()
        figures[f"one type, of the possible use{suffix}"] = await one.measure(schema, options, *of_type, kills=kills)
        figures[f"one type, at most at once (limit 20){suffix}"] = max(one.most.values())
        figures[f"50 lanes, of the possible use{suffix}"] = await each.measure(schema, options, *of_lanes, kills=kills)
        figures[f"50 lanes, at most at once (limit 1 each){suffix}"] = max(each.most.values())
    return figures


async def rate(schema: Schema, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    for per_second in (5, 100, 1000):
        figures |= await one_rate(schema, options, per_second)
    return figures


async def one_rate(schema: Schema, options: argparse.Namespace, per_second: int) -> Figures:
    registry, starts = Registry(), []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        starts.append(job.locked_at.timestamp())

    async with schema.clone() as url, connect(url, name="bench") as connection:
        await connection.execute("insert into reactor.limits (job_type, rate) values ('work', $1)", per_second)
        await connection.execute(
            "insert into reactor.jobs (job_type) select 'work' from generate_series(1, $1::int)",
            int(options.rate_seconds * per_second * 1.2),
        )
        async with pods(url, registry, capacity=10):
            await asyncio.sleep(options.rate_seconds)
    starts.sort()
    inner = [at for at in starts if starts[0] + 0.5 <= at]
    burst = max(2, per_second // 10)
    most, last = 0, 0
    for first, at in enumerate(starts):
        while last < len(starts) and starts[last] < at + 1:
            last += 1
        most = max(most, last - first)
    return {
        f"{per_second}/s, of the allowed starts": (len(inner) - 1) / (inner[-1] - inner[0]) / per_second,
        f"{per_second}/s, most in any second (allowed: {per_second + burst})": most,
    }


async def fairness(schema: Schema, options: argparse.Namespace) -> Figures:
    """One lane has 100,000 jobs, 99 lanes have ten each: 100 lanes share what is claimed."""
    async with schema.backend() as backend:
        await backend.insert(100_000, ", lane", ", 'big'")
        await backend.insert(990, ", lane", ", 'small ' || i % 99")
        done: Counter[str] = Counter()
        claimed, last = 0, 0
        while sum(count for lane, count in done.items() if lane != "big") < 990:
            jobs = [job for job in await backend.claim(20) if job["id"]]
            claimed += len(jobs)
            for row in await backend.connection.fetch(
                "select lane from reactor.jobs where id = any ($1)", [job["id"] for job in jobs]
            ):
                done[row["lane"]] += 1
                if row["lane"] != "big" and done[row["lane"]] == 10:
                    last = claimed
            await backend.settle(jobs)
        return {"a lane of 10 beside one of 100,000, of its share": last / (10 * 100)}


async def claim_plain(backend: Backend, count: int) -> Cost:
    """The cost of claims of one plain job each."""
    total = Cost()
    for _ in range(count):
        async with backend.measured() as cost:
            jobs = await backend.claim(1, ["plain", "work"], None)
        total += cost
        await backend.settle([job for job in jobs if job["id"]])
    return total / count


async def costs(schema: Schema, options: argparse.Namespace) -> Figures:
    cases = {
        "": "select 1",
        "beside limits elsewhere, of none": "insert into reactor.limits (queue, max_running, rate) "
        "select 'other ' || i, 10, 10 from generate_series(1, 10) i",
        "beside 100,000 of a full queue, of an empty one": "insert into reactor.limits (queue, max_running) "
        "values ('narrow', 0); insert into reactor.jobs (job_type, queue) select 'work', 'narrow' "
        "from generate_series(1, 100000)",
        "beside 100,000 in 1,000 full lanes, of an empty one": "insert into reactor.limits (job_type, lane, "
        "max_running) values ('work', '*', 0); insert into reactor.jobs (job_type, queue, lane) select 'work', "
        "'narrow', 'lane ' || i % 1000 from generate_series(1, 100000) i",
        "beside 1,000 full queues, of an empty one": "insert into reactor.limits (queue, max_running) select "
        "'narrow ' || i, 0 from generate_series(1, 1000) i; insert into reactor.jobs (job_type, queue) select 'work', "
        "'narrow ' || i % 1000 from generate_series(1, 100000) i",
    }
    figures = {}
    async with AsyncExitStack() as stack:
        backends = {name: await stack.enter_async_context(schema.backend()) for name in cases}
        for name, backend in backends.items():
            await backend.connection.execute(cases[name], timeout=600)
            await backend.insert(1000, job_type="'plain'")
            await backend.claim(1, ["plain", "work"], None)
            # Not new any more: claims have given up to look for jobs that ran before.
            await backend.connection.execute("update reactor.limits set seen_at = now() - interval '1 minute'")
            await backend.vacuum()
            await claim_plain(backend, 10)
        await asyncio.sleep(1)
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(21):  # alternately, so that other load on the machine affects all of them
            for name, backend in backends.items():
                found[name].append((await claim_plain(backend, 20)).cpu_us)
        alone = found.pop("")
        figures["a lone claim, CPU µs"] = statistics.median(alone)
        for name, values in found.items():
            figures[name] = statistics.median(one / other for one, other in zip(values, alone, strict=True))
    for name, statement in {
        "a lane without limits": "select 1",
        "a limit of the type": "insert into reactor.limits (job_type, max_running) values ('work', 1000000)",
        "a limit of each lane": "insert into reactor.limits (job_type, lane, max_running) values ('work', '*', 1000)",
    }.items():
        async with schema.backend() as backend:
            await backend.connection.execute(statement)
            await backend.insert(12_000, *(() if "type" in name else (", lane", ", 'lane ' || i % 1000")))
            await backend.vacuum()
            total, count = Cost(), 0
            while count < 10_000:
                async with backend.measured() as cost:
                    jobs = await backend.claim(100)
                async with backend.measured() as other:
                    await backend.settle([job for job in jobs if job["id"]])
                total, count = total + cost + other, count + len(jobs)
            figures[f"{name}: claim + settle, CPU µs per job"] = total.cpu_us / count
    return figures


MEASUREMENTS: dict[str, Callable[[Schema, argparse.Namespace], Awaitable[Figures]]] = {
    "concurrency": concurrency,
    "rate": rate,
    "fairness": fairness,
    "costs": costs,
}


async def main(options: argparse.Namespace) -> None:
    with server(options.server) as url:
        async with Schema(url) as schema:
            for name in options.only or MEASUREMENTS:
                for figure, value in (await MEASUREMENTS[name](schema, options)).items():
                    print(f"{figure:68}{value:10,.3f}  {GOALS.get(figure, '')}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, help="measure only these")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of each use of a limit (default: 10)")
    parser.add_argument("--rate-seconds", type=float, default=60, help="seconds of the rate (default: 60)")
    parser.add_argument("--server", help="URL of a server on this machine (default: a new embedded one)")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    asyncio.run(main(parser.parse_args()))
