"""How many no-op jobs a second, and how long until a lone one starts: reactor, a bare loop of its statements, pgqueuer.

One run, one server, a fresh database for every measurement, the contestants in another order each round: the ratios
count, not the figures. The start of a process is not part of any: the clock of a drain runs from the first claim to the
last end, as the database noted them; that of a lone job from its commit to its handler's first line.
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
from collections.abc import AsyncIterator
from pathlib import Path

from bench.contestants import GAP_SECONDS, HERE, Contestant, contestants, why_not
from reactor.database.connection import connect
from reactor.testing import Databases, server_for_tests

WARM_UP = 10
DEADLINE_SECONDS = 120
COLUMNS = {"jobs_per_second": "9.0f", "of_bare": "9.2f", "p50_ms": "10.2f", "p50_of_bare": "9.2f", "p99_ms": "10.2f"}


@contextlib.asynccontextmanager
async def running(command: list[str], url: str, starts: Path | None = None) -> AsyncIterator[None]:
    """The process, for as long as the block runs; one that fails fails the block."""
    known = {"URL": url, "BENCH_STARTS": str(starts)}
    environment = os.environ | {"REACTOR_DATABASE_URL": url, "PYTHONPATH": str(HERE)}
    if starts:
        environment |= {"BENCH_STARTS": str(starts)}
    process = await asyncio.create_subprocess_exec(
        *(known.get(word, word) for word in command), env=environment, cwd=HERE, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        failed = bool(process.returncode)
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 15)
            except TimeoutError:
                process.kill()
                await process.wait()
    assert not failed, f"it ended with {process.returncode}: {' '.join(command)}"


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
            # Its first jobs tell that it is up.
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
        + ("as expected" if (ratio >= bound) == (sign == ">=") else "MISSED")
        for what, ratio, sign, bound in found
        if ratio is not None
    ]


async def main(options: argparse.Namespace) -> None:
    chosen = {}
    for name, contestant in contestants(options.concurrency).items():
        if not name.startswith(options.only or ""):
            continue
        if why := why_not(name):
            print(f"{name} is left out: {why}", file=sys.stderr)
        else:
            chosen[name] = contestant
    rates: dict[str, list[float]] = {name: [] for name in chosen}
    delays: dict[str, list[float]] = {name: [] for name in chosen}
    with server_for_tests(options.server, version=None if options.server else 18) as url:
        databases = Databases(url)
        await databases.prepare()
        try:
            for turn in range(options.rounds):
                for name in random.sample(list(chosen), len(chosen)):
                    async with databases.clone() as clone:
                        rates[name].append(await drain_rate(chosen[name], clone, options.jobs))
                    if chosen[name].lone:
                        async with databases.clone() as clone:
                            delays[name] += await lone_delays(chosen[name], clone, options.lone // options.rounds)
                    print(f"round {turn + 1}  {name:26} {rates[name][-1]:8.0f} jobs/s", file=sys.stderr, flush=True)
        finally:
            await databases.remove()
    table = report(rates, delays)
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"\n{options.jobs} no-op jobs, median of {options.rounds}; lone jobs {GAP_SECONDS * 1e3:.0f} ms apart")
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
    parser.add_argument("--jobs", type=int, default=20_000, help="in a drain (default: 20,000)")
    parser.add_argument("--lone", type=int, default=300, help="lone jobs, over all rounds (default: 300)")
    parser.add_argument("--rounds", type=int, default=3, help="of all contestants (default: 3)")
    parser.add_argument("--concurrency", type=int, default=200, help="of reactor's worker (default: 200)")
    parser.add_argument("--only", help="only contestants whose name begins so, e.g. bare")
    parser.add_argument("--server", help="its address; unless given, one is started for the run")
    parser.add_argument("--json", action="store_true", help="instead of the table")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 2,000 jobs, 20 lone ones, one round")
    options = parser.parse_args()
    if options.quick:
        options.jobs, options.lone, options.rounds = 2000, 20, 1
    asyncio.run(main(options))
