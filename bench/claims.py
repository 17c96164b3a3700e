"""Measures whether claims stay fast beside many jobs that can't be claimed, as a ratio to a table without them.

For each background load there are two databases on one server, claimed from alternately, so that other load on the
machine affects both.
"""

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack

from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, register_worker
from reactor.testing import Databases, server_for_tests

BATCH = 100
ROUNDS = 150
READY = f"insert into reactor.jobs (job_type) select 'work' from generate_series(1, {BATCH * (ROUNDS + 20)})"

BACKGROUND_LOADS = {
    "nothing (noise of the measurement)": "select 1",
    "100,000 pending jobs in one busy scope": (
        "insert into reactor.jobs (job_type, scope, priority) "
        "select 'work', 'busy', -1 from generate_series(1, {n:.0f})"
    ),
    "300,000 jobs scheduled for tomorrow, at a higher priority": (
        "insert into reactor.jobs (job_type, run_after, priority) "
        "select 'work', now() + interval '1 day', -1 from generate_series(1, {n:.0f} * 3)"
    ),
    "1,000,000 pending jobs of a type without a handler": (
        "insert into reactor.jobs (job_type, priority) select 'unknown', -1 from generate_series(1, {n:.0f} * 10)"
    ),
    "5,000,000 finished jobs": (
        "insert into reactor.jobs (job_type, state, attempts, attempt_id, started_at, finished_at) "
        "select 'work', 'completed', 1, gen_random_uuid(), now(), now() from generate_series(1, {n:.0f} * 50)"
    ),
}


async def fill(connection: Connection, load: str) -> None:
    # Without triggers, which are not measured here and would take hours.
    await connection.execute("set session_replication_role = replica")
    await connection.execute(load, timeout=3600)
    await connection.execute(READY, timeout=3600)
    await connection.execute("set session_replication_role = origin")
    await connection.execute("vacuum analyze reactor.jobs", timeout=3600)


async def timed_claim(connection: Connection, worker: Worker) -> tuple[float, int]:
    started = time.perf_counter()
    jobs = await claim(connection, worker, BATCH)
    return time.perf_counter() - started, len(jobs)


async def hold_busy_scope(connection: Connection, worker: Worker) -> float:
    """Runs one job of the scope. Claims that encounter the others park them once. Returns the seconds that takes."""
    started = time.perf_counter()
    while await connection.fetchval(
        "select exists (select from reactor.jobs where scope = 'busy' and state = 'pending' and not parked)"
    ):
        await claim(connection, worker, BATCH)
    await connection.execute("vacuum analyze reactor.jobs")
    return time.perf_counter() - started


async def measure(databases: Databases, load: str, scale: float) -> str:
    async with AsyncExitStack() as stack:
        sides = []
        for statement in ("select 1", load.format(n=100_000 * scale)):
            url = await stack.enter_async_context(databases.clone())
            connection = await stack.enter_async_context(connect(url, name="bench"))
            worker = Worker("bench", {"work": 3}, capacity=BATCH)
            await register_worker(connection, worker, 86400)
            await fill(connection, statement)
            sides.append((connection, worker))
        parking = await hold_busy_scope(*sides[1])
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for (connection, worker), side in zip(sides, times, strict=True):
                seconds, count = await timed_claim(connection, worker)
                assert count == BATCH, f"only {count} jobs were claimed"
                side.append(seconds)
        alone, beside = (statistics.median(side[10:]) * 1000 for side in times)
        once = f"  (parked once, in {parking:.1f} s)" if "busy" in load else ""
        return f"{alone:6.2f} ms  {beside:6.2f} ms  {beside / alone:5.2f}{once}"


async def main(scale: float) -> None:
    with server_for_tests(version=18) as url:
        databases = Databases(url)
        await databases.prepare()
        print(f"{BATCH} jobs per claim, median of {ROUNDS - 10}:   alone     beside  ratio")
        for name, load in BACKGROUND_LOADS.items():
            print(f"{name:58}", end="  ", flush=True)
            print(await measure(databases, load, scale), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scale", type=float, default=1, help="size of the background load; 0.1 = a tenth (default: 1)"
    )
    asyncio.run(main(parser.parse_args().scale))
