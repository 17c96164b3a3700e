"""Measures what a pod does behind a slow network: plain jobs, transactions and steps, and how it stops.

A TCP link on this machine delays each direction by half of the round trip. Times divided by the round trip are what
matters: `plain` runs jobs that do nothing, `transactions` jobs with one statement in ctx.transaction(), `steps` one job
with a plan of steps in groups of four, and `sequence` one job whose steps run one after the other. `stop` is the time
from SIGTERM, without a grace period, to the release of a running job.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.drain import running
from reactor.database.connection import Connection, connect
from reactor.testing import Databases, server_for_tests
from tests.support.link import link_for

PLAIN, TRANSACTIONS, STEPS, SEQUENCE = 300, 100, 120, 40
LEASE_SECONDS = 60
WORKER = [sys.executable, "-m", "reactor", "worker", "--app", "latency_handlers", "--concurrency", "10"]
TOOK = "select extract(epoch from max(finished_at) - min(created_at))::float8 from reactor.jobs where job_type = $1"


async def finish(connection: Connection) -> None:
    async with asyncio.timeout(120):
        while await connection.fetchval("select exists (select from reactor.jobs where finished_at is null)"):
            await asyncio.sleep(0.02)


async def seconds(connection: Connection, job_type: str, count: int = 1, payload: str = "{}") -> float:
    await connection.execute(
        "insert into reactor.jobs (job_type, payload) select $1, $2::jsonb from generate_series(1, $3)",
        job_type,
        payload,
        count,
    )
    await finish(connection)
    return float(await connection.fetchval(TOOK, job_type))


@asynccontextmanager
async def slow(databases: Databases, round_trip_seconds: float) -> AsyncIterator[tuple[Connection, str]]:
    """A connection past the link, and the URL of the same database through it."""
    async with databases.clone() as url, link_for(url) as (link, through):
        link.latency_seconds = round_trip_seconds / 2
        async with connect(url, name="bench") as connection:
            yield connection, through


async def work(databases: Databases, round_trip_seconds: float) -> dict[str, float]:
    async with slow(databases, round_trip_seconds) as (connection, through), running(WORKER, through):
        # Opens the connections of the pool, and prepares the statements.
        await seconds(connection, "warm_up", 20)
        return {
            "plain": await seconds(connection, "plain", PLAIN),
            "transactions": await seconds(connection, "transaction", TRANSACTIONS),
            "steps": await seconds(connection, "steps", payload=f'{{"groups": {STEPS // 4}, "size": 4}}'),
            "sequence": await seconds(connection, "sequence", payload=f'{{"groups": {SEQUENCE}, "size": 1}}'),
        }


async def stop(databases: Databases, round_trip_seconds: float) -> float:
    """From the signal to the release of the running job; infinite: it was not released."""
    async with slow(databases, round_trip_seconds) as (connection, through):
        command = [*WORKER, "--processes", "2"]
        settings = {"REACTOR_SHUTDOWN_GRACE_SECONDS": "0", "REACTOR_LEASE_SECONDS": str(LEASE_SECONDS)}
        async with running(command, through, settings=settings, fails=True) as pod:
            await connection.execute("insert into reactor.jobs (job_type) select 'long' from generate_series(1, 4)")
            async with asyncio.timeout(60):
                while await connection.fetchval("select count(*) from reactor.jobs where started_at is null"):
                    await asyncio.sleep(0.05)
            started = asyncio.get_running_loop().time()
            pod.send_signal(signal.SIGTERM)
            while await connection.fetchval("select exists (select from reactor.jobs where worker_id is not null)"):
                await asyncio.sleep(0.02)
                if asyncio.get_running_loop().time() - started > LEASE_SECONDS / 2:
                    return float("inf")
            return asyncio.get_running_loop().time() - started


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips", type=float, nargs="*", default=[0, 20, 100], metavar="MS")
    arguments = parser.parse_args()
    counts = {"plain": PLAIN, "transactions": TRANSACTIONS, "steps": STEPS, "sequence": SEQUENCE, "stop": 4}
    print(f"{'round trip':>12}" + "".join(f"{f'{count} {name}':>18}" for name, count in counts.items()))
    with server_for_tests() as server:
        databases = Databases(server)
        await databases.prepare()
        for milliseconds in arguments.round_trips:
            measured = await work(databases, milliseconds / 1000)
            measured["stop"] = await stop(databases, milliseconds / 1000)
            print(f"{milliseconds:>9.0f} ms" + "".join(f"{measured[name]:>16.2f} s" for name in counts), flush=True)
        await databases.remove()


if __name__ == "__main__":
    asyncio.run(main())
