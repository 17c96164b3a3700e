"""Compares reactor, a bare loop of its statements, and pgqueuer: no-op jobs per second, and latency of a single job.

All contestants run on one server, with a fresh database per measurement and in a random order each round. The ratios
matter, not the absolute numbers. Process startup is excluded: a drain is measured from the first claim to the last end
as the database recorded them, a single job from its commit to the first line of its handler.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from bench.contestants import GAP_SECONDS, HERE, Contestant, contestants, missing_requirement
from reactor.database.connection import connect
from reactor.testing import Databases, server_for_tests

WARM_UP = 10
DEADLINE_SECONDS = 120
COLUMNS = {"jobs_per_second": "9.0f", "of_bare": "9.2f", "p50_ms": "10.2f", "p50_of_bare": "9.2f", "p99_ms": "10.2f"}


@contextlib.asynccontextmanager
async def running(
    command: list[str],
    url: str,
    starts: Path | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    fails: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs the command during the block. If it ends before with an exit code other than 0, that must be expected."""
    known = {"URL": url, "BENCH_STARTS": str(starts)}
    environment = os.environ | {"REACTOR_DATABASE_URL": url, "PYTHONPATH": str(HERE)}
    if starts:
        environment |= {"BENCH_STARTS": str(starts)}
    environment |= settings or {}
    process = await asyncio.create_subprocess_exec(
        *(known.get(word, word) for word in command), env=environment, cwd=HERE, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        failed = bool(process.returncode) and not fails
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
    assert not failed, f"exit code {process.returncode}: {' '.join(command)}"


async def drain_rate(contestant: Contestant, url: str, jobs: int) -> float:
    system = contestant.system
    await system.install(url)
    await system.fill(url, jobs)
    async with connect(url, name="bench") as connection:
        await connection.execute("vacuum analyze")
        async with running(contestant.drain, url), asyncio.timeout(DEADLINE_SECONDS):
            while await connection.fetchval(system.unfinished):
                await asyncio.sleep(0.2)
        return jobs / float(await connection.fetchval(system.drain_seconds))


async def lone_delays(contestant: Contestant, url: str, jobs: int) -> list[float]:
    """Milliseconds from a job's commit to its handler's start, sorted."""
    assert contestant.lone
    await contestant.system.install(url)
    with tempfile.TemporaryDirectory() as folder:
        starts = Path(folder) / "starts"
        starts.touch()
        async with running(contestant.lone, url, starts), asyncio.timeout(DEADLINE_SECONDS):
            # The start of a first job shows that it is ready.
            await contestant.system.insert(url, 1)
            while not starts.read_text():
                await asyncio.sleep(0.05)
            starts.write_text("")
            committed = await contestant.system.insert(url, jobs + WARM_UP)
            while len(lines := starts.read_text().splitlines()) < len(committed):
                await asyncio.sleep(0.05)
    started = {json.loads(payload)["i"]: int(at) for payload, at in (line.split("\t") for line in lines)}
    return sorted((started[i] - at) / 1e6 for i, at in committed.items() if i >= WARM_UP)


def report(rates: dict[str, list[float]], delays: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Medians over the rounds, and each contestant's ratio to the best bare loop."""
    medians = {name: statistics.median(measured) for name, measured in rates.items()}
    bare = max((rate for name, rate in medians.items() if name.startswith("bare")), default=None)
    bare_delay = next((statistics.median(d) for name, d in delays.items() if d and name.startswith("bare")), None)
    table = {}
    for name, rate in medians.items():
        table[name] = {"jobs_per_second": rate} | ({"of_bare": rate / bare} if bare else {})
        if lone := sorted(delays.get(name, [])):
            table[name] |= {"p50_ms": statistics.median(lone), "p99_ms": lone[int(len(lone) * 0.99)]}
            table[name] |= {"p50_of_bare": statistics.median(lone) / bare_delay} if bare_delay else {}
    return table


def expectations(table: dict[str, dict[str, float]]) -> list[str]:
    reactor, peers = table.get("reactor"), [row for name, row in table.items() if name.startswith("pgqueuer")]
    if reactor is None:
        return []
    found = [("of bare's jobs/s", reactor.get("of_bare"), ">=", 0.60)]
    if peers:
        best = max(row["jobs_per_second"] for row in peers)
        found.append(("of pgqueuer's best jobs/s", reactor["jobs_per_second"] / best, ">=", 1.5))
    found.append(("of bare's p50", reactor.get("p50_of_bare"), "<", 1.5))
    return [
        f"reactor has {ratio:.2f} {what}, expected {sign} {bound}: "
        + ("ok" if (ratio >= bound) == (sign == ">=") else "MISSED")
        for what, ratio, sign, bound in found
        if ratio is not None
    ]


async def main(options: argparse.Namespace) -> None:
    chosen = {}
    for name, contestant in contestants(options.concurrency).items():
        if not name.startswith(options.only or ""):
            continue
        if reason := missing_requirement(name):
            print(f"{name} is skipped: {reason}", file=sys.stderr)
        else:
            chosen[name] = contestant
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    delays: dict[str, list[float]] = {name: [] for name in chosen}
    with server_for_tests(options.server, version=None if options.server else 18) as url:
        databases = Databases(url)
        await databases.prepare()
        try:
            for number in range(options.rounds):
                for name in random.sample(list(chosen), len(chosen)):
                    async with databases.clone() as clone:
                        rates[name].append(await drain_rate(chosen[name], clone, options.jobs))
                    if chosen[name].lone:
                        async with databases.clone() as clone:
                            delays[name] += await lone_delays(chosen[name], clone, options.lone // options.rounds)
                    print(f"round {number + 1}  {name:26} {rates[name][-1]:8.0f} jobs/s", file=sys.stderr, flush=True)
        finally:
            await databases.remove()
    table = report(rates, delays)
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"\n{options.jobs} no-op jobs, median of {options.rounds}; single jobs {GAP_SECONDS * 1e3:.0f} ms apart")
    print(f"{'':26}   jobs/s  of bare    p50 ms  of bare    p99 ms")
    for name, row in table.items():
        print(
            f"{name:26}"
            + "".join(
                f"{row[key]:{how}}" if key in row else f"{'-':>{how.split('.')[0]}}" for key, how in COLUMNS.items()
            )
        )
    print("\n".join(expectations(table)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per drain (default: 20,000)")
    parser.add_argument("--lone", type=int, default=300, help="single jobs over all rounds (default: 300)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all contestants (default: 3)")
    parser.add_argument("--concurrency", type=int, default=200, help="concurrency of reactor's worker (default: 200)")
    parser.add_argument("--only", help="only contestants whose names start with this, e.g. bare")
    parser.add_argument("--server", help="URL of the server (default: a new embedded one)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="a smoke test: 2,000 jobs, 20 single jobs, one round")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.lone, options.rounds = 2000, 20, 1
    asyncio.run(main(options))
