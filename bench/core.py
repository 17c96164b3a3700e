"""Measures what PostgreSQL spends on a job: CPU and WAL of claims and ends, single statements beside a bare UPDATE,
inserts with and without triggers, and drains beside a backlog and beside an open transaction.

`--beside ../other` builds a second schema from another checkout, measures both alternately, and prints ratios: the
only figures that can be compared on a machine with other load. The databases are built from sql/schema, so that a
change needs no migration to be measured.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.backend import HERE, Backend, Cost, Schema, held_snapshot, schemas, server
from bench.inserts import insert_rate, listen
from reactor.database.connection import connect

Figures = dict[str, float]
Measurement = Callable[[Schema, argparse.Namespace], Awaitable[Figures]]

BATCH = 200
BLOCK = 20
COMMITTERS, LISTENERS = 8, 10
# What the engine aims at: "<" at most, ">" at least.
GOALS = {
    "WAL bytes per job": "< 800",
    "a lone claim, of a bare UPDATE's time": "< 1.3",
    "a lone settle, of a bare UPDATE's time": "< 1.3",
    "inserts/s, of those without triggers": "> 0.85",
    "beside a backlog, of an empty table's jobs/s": "> 0.9",
    "beside an open transaction, of jobs/s without": "> 0.5",
}


async def batches(schema: Schema, options: argparse.Namespace) -> Figures:
    """No-op jobs in batches of 200."""
    async with schema.backend() as backend:
        await backend.insert(options.jobs + 10 * BATCH, ", payload", ", jsonb_build_object('i', i)")
        await backend.vacuum()
        await backend.run(10 * BATCH, BATCH)
        claims, settles = (cost / options.jobs for cost in await backend.run(options.jobs, BATCH))
    return {
        "claim, CPU µs per job": claims.cpu_us,
        "settle, CPU µs per job": settles.cpu_us,
        "claim + settle, CPU µs per job": claims.cpu_us + settles.cpu_us,
        "claim + settle, wall µs per job": claims.wall_us + settles.wall_us,
        "WAL bytes per job": claims.wal_bytes + settles.wal_bytes,
    }


BARE = """
create table public.bare (like reactor.jobs including defaults including identity);
alter table public.bare add primary key (id);
insert into public.bare (job_type) select 'work' from generate_series(1, 1000);
"""
BARE_UPDATE = "update public.bare set state = $2, attempt_id = $3, locked_at = clock_timestamp() where id = $1"


async def lone(schema: Schema, options: argparse.Namespace) -> Figures:
    """Single claims and settles, each beside an UPDATE of one row of the same width, without triggers and with no
    index but the primary key. Every statement commits."""
    async with schema.backend() as backend:
        await backend.insert(options.lone + 100, ", payload", ", jsonb_build_object('i', i)")
        await backend.connection.execute(BARE)
        await backend.vacuum()
        await backend.run(100, 1)
        costs = {"claim": Cost(), "settle": Cost(), "update": Cost()}
        for start in range(0, options.lone, BLOCK):
            jobs = []
            async with backend.measured() as cost:
                for _ in range(BLOCK):
                    jobs += await backend.claim(1)
            costs["claim"] += cost
            async with backend.measured() as cost:
                for job in jobs:
                    await backend.settle([job])
            costs["settle"] += cost
            async with backend.measured() as cost:
                for n, job in enumerate(jobs, start):
                    await backend.connection.fetch(BARE_UPDATE, n % 1000 + 1, "running", job["attempt_id"])
            costs["update"] += cost
        each = {name: cost / options.lone for name, cost in costs.items()}
    return {
        "a bare UPDATE, CPU µs": each["update"].cpu_us,
        "a lone claim, CPU µs": each["claim"].cpu_us,
        "a lone settle, CPU µs": each["settle"].cpu_us,
        "a lone claim, of a bare UPDATE's CPU": each["claim"].cpu_us / each["update"].cpu_us,
        "a lone settle, of a bare UPDATE's CPU": each["settle"].cpu_us / each["update"].cpu_us,
        "a lone claim, of a bare UPDATE's time": each["claim"].wall_us / each["update"].wall_us,
        "a lone settle, of a bare UPDATE's time": each["settle"].wall_us / each["update"].wall_us,
    }


async def inserts(schema: Schema, options: argparse.Namespace) -> Figures:
    """8 committers of single rows, while 10 sessions listen."""
    rates = {}
    for name, variant in {"as shipped": "select 1", "bare": "alter table reactor.jobs disable trigger user"}.items():
        async with AsyncExitStack() as stack:
            clone = await stack.enter_async_context(schema.clone())
            connections = [await stack.enter_async_context(connect(clone, name="listener")) for _ in range(LISTENERS)]
            await connections[0].execute(variant)
            for connection in connections:
                await listen(connection, "reactor_jobs")
            rates[name] = await asyncio.to_thread(insert_rate, clone, COMMITTERS, options.seconds)
    return {
        "inserts/s": rates["as shipped"],
        "inserts/s, of those without triggers": rates["as shipped"] / rates["bare"],
    }


async def rate(backend: Backend, jobs: int) -> tuple[float, Cost]:
    """Jobs per second of a drain by one session, and its cost per job."""
    claims, settles = await backend.run(jobs, BATCH)
    total = claims + settles
    return jobs / total.wall_us * 1e6, total / jobs


@asynccontextmanager
async def beside_backlog(schema: Schema, scale: float) -> AsyncIterator[Backend]:
    """A database with finished, scheduled and pending jobs; the jobs to be drained come before the pending ones."""
    async with schema.backend() as backend:
        if scale:
            await backend.insert(1)
            await backend.run(1, 1)
            await backend.insert(1, ", run_after", ", now() + interval '1 day'")
            await backend.insert(1, ", priority", ", 10")
            finished, scheduled, pending = (
                row["id"] for row in await backend.connection.fetch("select id from reactor.jobs order by id")
            )
            await backend.copy(finished, int(10_000_000 * scale))
            await backend.copy(scheduled, int(300_000 * scale))
            await backend.copy(pending, int(1_000_000 * scale))
        yield backend


async def backlog(schema: Schema, options: argparse.Namespace) -> Figures:
    found = {}
    for scale in (0, options.backlog):
        async with beside_backlog(schema, scale) as backend:
            await backend.insert(options.jobs + BATCH)
            await backend.vacuum()
            await backend.run(BATCH, BATCH)
            found[scale] = await rate(backend, options.jobs)
    (alone, alone_cost), (beside, beside_cost) = found[0], found[options.backlog]
    return {
        "beside a backlog, of an empty table's jobs/s": beside / alone,
        "beside a backlog, of an empty table's CPU": beside_cost.cpu_us / alone_cost.cpu_us,
    }


async def open_transaction(schema: Schema, options: argparse.Namespace) -> Figures:
    found = []
    for held in (False, True):
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(schema.backend())
            await backend.insert(options.passed + BATCH)
            await backend.vacuum()
            await backend.run(BATCH, BATCH)
            if held:
                await stack.enter_async_context(held_snapshot(backend.url))
            whole = await rate(backend, options.passed - options.passed // 10)
            last = await rate(backend, options.passed // 10)
            found.append((options.passed / ((options.passed * 0.9) / whole[0] + options.passed * 0.1 / last[0]), last))
    (without, last_without), (beside, last_beside) = found
    return {
        "beside an open transaction, of jobs/s without": beside / without,
        "the same, of the last tenth's CPU": last_beside[1].cpu_us / last_without[1].cpu_us,
    }


MEASUREMENTS: dict[str, Measurement] = {
    "batches": batches,
    "lone": lone,
    "inserts": inserts,
    "backlog": backlog,
    "transaction": open_transaction,
}


async def measure(options: argparse.Namespace, trees: list[Path]) -> dict[str, list[list[float]]]:
    """The values of each figure, per tree, over the rounds."""
    found: dict[str, list[list[float]]] = {}
    with server(options.server, durable=options.durable) as url:
        async with schemas(url, trees) as made:
            for name in options.only or MEASUREMENTS:
                for number in range(options.rounds):
                    for side, schema in enumerate(made):
                        for figure, value in (await MEASUREMENTS[name](schema, options)).items():
                            found.setdefault(figure, [[] for _ in made])[side].append(value)
                        print(f"{name}, round {number + 1}, {trees[side].name}", file=sys.stderr, flush=True)
    return found


def table(found: dict[str, list[list[float]]], trees: list[Path]) -> str:
    names = [f"{tree.name:>12.12}" for tree in trees] + ["   ratio"] * (len(trees) > 1)
    lines = [f"{'':48}{''.join(names)}  goal"]
    for figure, sides in found.items():
        values = [statistics.median(side) for side in sides]
        # Rounds alternate, so that the neighbours in time are compared.
        ratios = [one / other for one, other in zip(*sides, strict=True) if other] if len(sides) > 1 else []
        ratio = f"{statistics.median(ratios):8.2f}" if ratios else ""
        lines.append(f"{figure:48}{''.join(f'{value:12,.2f}' for value in values)}{ratio}  {GOALS.get(figure, '')}")
    return "\n".join(lines)


async def main(options: argparse.Namespace) -> None:
    trees = [HERE] + ([options.beside.resolve()] if options.beside else [])
    found = await measure(options, trees)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"\nmedian of {options.rounds}; batches of {BATCH}; ratio: the first column to the second")
    print(table(found, trees))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="another checkout, measured alternately")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, help="measure only these")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (default: 3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per drain (default: 20,000)")
    parser.add_argument("--lone", type=int, default=1_000, help="single claims and settles per round (default: 1,000)")
    parser.add_argument("--seconds", type=float, default=4, help="seconds per measurement of inserts (default: 4)")
    parser.add_argument(
        "--backlog",
        type=float,
        default=0.03,
        help="part of 10 M finished, 1 M pending, 300 k scheduled (default: 0.03)",
    )
    parser.add_argument(
        "--passed", type=int, default=50_000, help="jobs that pass an open transaction (default: 50,000)"
    )
    parser.add_argument("--durable", action="store_true", help="a server on disk with fsync, instead of one in memory")
    parser.add_argument("--server", help="URL of a server on this machine (default: a new embedded one)")
    parser.add_argument("--json", action="store_true", help="print all values as JSON")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one small round")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.jobs, options.lone, options.passed = 1, 1000, 20, 2000
        options.seconds, options.backlog = 1, 0.0001
    asyncio.run(main(options))
