"""pgqueuer as a contestant. Started by drain.py in a virtual environment without reactor."""

import asyncio
import json
import os
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def fill(url: str, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    for first in range(0, jobs, 1000):
        numbers = range(first, min(first + 1000, jobs))
        await queries.enqueue(["noop"] * len(numbers), [payload(i) for i in numbers], [0] * len(numbers))
    await connection.close()


async def insert(url: str, jobs: int, gap_seconds: float) -> None:
    """Inserts one job at a time and prints when each was committed."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    committed = {}
    for i in range(jobs):
        await queries.enqueue("noop", payload(i))
        committed[i] = time.time_ns()
        await asyncio.sleep(gap_seconds)
    await connection.close()
    print(json.dumps(committed))


async def work(url: str, driver: str, batch: int) -> None:
    """Runs jobs until it is killed."""
    if driver == "pool":
        queuer = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=2, max_size=4)))
    else:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    starts = os.environ.get("BENCH_STARTS")
    log = open(starts, "a", buffering=1) if starts else None  # noqa: PTH123, SIM115, ASYNC230 (like the other contestants)

    @queuer.entrypoint("noop")  # type: ignore[untyped-decorator, unused-ignore]
    async def noop(job: Job) -> None:
        if log:
            now = time.time_ns()
            log.write(f"{(job.payload or b'').decode()}\t{now}\n")

    await queuer.run(batch_size=batch)


def payload(i: int) -> bytes:
    return json.dumps({"i": i}).encode()


if __name__ == "__main__":
    command, url, *rest = sys.argv[1:]
    match command:
        case "install":
            uvloop.run(install(url))
        case "fill":
            uvloop.run(fill(url, int(rest[0])))
        case "insert":
            uvloop.run(insert(url, int(rest[0]), float(rest[1])))
        case "work":
            uvloop.run(work(url, rest[0], int(rest[1])))
