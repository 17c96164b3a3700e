"""Measures how costs grow, one dimension at a time, and writes docs/costs.md.

The sizes of a dimension are measured in turn, each in a new database, and medians are compared. This takes two to
three minutes; with --full, which adds the largest sizes, about ten. Without --write the page is printed.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import textwrap
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from bench.backend import HERE, Cost, Schema, server
from bench.dimensions import DIMENSIONS, Dimension, Meter, warm_up
from reactor.database.connection import connect

FINISHED = 20_000
PAGE = HERE / "docs" / "costs.md"
CONSTANT, LINEAR = 0.25, 1.15  # exponents; a factor of 1.8 and of 14 where the size grows by 10


@dataclass
class Measured:
    """The costs of one dimension: by figure and size."""

    sizes: list[int]
    costs: dict[str, dict[int, list[Cost]]] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    """Sizes that could not be measured, with the reason."""
    at_least: dict[str, tuple[int, Cost]] = field(default_factory=dict)
    """By figure: the size at which it was stopped, and what it had cost by then."""

    def medians(self, figure: str, unit: str) -> dict[int, float]:
        return {
            size: statistics.median(getattr(cost, unit) for cost in costs)
            for size, costs in self.costs[figure].items()
            if costs
        }


async def measure(dimension: Dimension, schema: Schema, options: argparse.Namespace) -> Measured:
    sizes = [*dimension.sizes, *(dimension.full if options.full else ())]
    measured = Measured(sizes if not options.quick else sizes[:1])
    started = time.monotonic()
    for _ in range(options.rounds):
        for size in measured.sizes:
            if any(size >= failed for failed in measured.stopped):
                continue
            async with schema.backend() as backend:
                meter = Meter(backend, options.limit_seconds)
                try:
                    await warm_up(backend)
                    await dimension.run(backend, size, meter)
                except (asyncpg.QueryCanceledError, TimeoutError):
                    measured.stopped[size] = f"> {options.limit_seconds:g} s"
                    measured.at_least |= {figure: (size, cost) for figure, cost in meter.at_least.items()}
                except AssertionError as error:
                    # The page is written all the same, and shows it.
                    measured.stopped[size] = f"wrong: {error}"
                    meter.costs = {figure: [] for figure in meter.costs}
                    print(f"{dimension.title}, {size:,}: {error}", file=sys.stderr, flush=True)
                except asyncpg.PostgresError as error:
                    measured.stopped[size] = f"refused: {error}"
                for figure, costs in meter.costs.items():
                    measured.costs.setdefault(figure, {}).setdefault(size, []).extend(costs)
        if time.monotonic() - started > options.dimension_seconds:
            break
    return measured


def exponent(values: dict[int, float]) -> float:
    """The power of the size by which the cost grows: over all sizes, or over the last step if that is more, because a
    fixed part of the cost hides growth at small sizes."""
    points = [(math.log(size), math.log(max(value, 1))) for size, value in values.items()]
    (size, value), (larger, more) = points[-2:]
    return max(statistics.linear_regression(*zip(*points, strict=True)).slope, (more - value) / (larger - size))


def growth(values: dict[int, float]) -> tuple[float, str]:
    if len(values) < 2:
        return 0, "-"
    power = exponent(values)
    if power <= CONSTANT:
        name = "constant"
    elif power <= LINEAR:
        name = "linear" if power > 0.75 else "less than linear"
    else:
        name = "**worse**"
    return power, f"{name} ({max(power, 0):.1f})"


def in_time(microseconds: float) -> str:
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds:.0f} µs"


def in_bytes(count: float) -> str:
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class Row:
    figure: str
    cells: list[str]
    ratio: str
    power: float
    growth: str


def rows(dimension: Dimension, measured: Measured) -> list[Row]:
    """A row per figure: CPU and time at each size, the largest as a ratio to the smallest, and how it grows."""
    found = []
    for figure in measured.costs:
        cpu, wall = measured.medians(figure, "cpu_us"), measured.medians(figure, "wall_us")
        if not wall:
            continue
        if not any(cpu.values()):  # a wait
            cpu = {}
        shown = {size: f"{in_time(cpu[size])}, {in_time(wall[size])}" if cpu else in_time(wall[size]) for size in wall}
        found.append(_row(figure, measured, shown, cpu or wall))
        if dimension.shows_wal:
            wal = measured.medians(figure, "wal_bytes")
            found.append(_row(f"{figure}, WAL", measured, {size: in_bytes(wal[size]) for size in wal}, wal))
    return found


def _row(figure: str, measured: Measured, shown: dict[int, str], values: dict[int, float]) -> Row:
    reason = next(iter(measured.stopped.values()), "-")
    cells = [shown.get(size, reason) for size in measured.sizes]
    power, name = growth(values)
    if figure in measured.at_least:
        size, cost = measured.at_least[figure]
        power, name = max((power, name), growth(values | {size: cost.cpu_us}))
    if reason.startswith("wrong"):
        power, name = math.inf, "**wrong**"
    first, *_, last = [*values.values()] * 2
    ratio = max(last, 1) / max(first, 1)
    return Row(figure, cells, f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}", power, name)


def section(dimension: Dimension, measured: Measured) -> str:
    head = [dimension.grows, *map(dimension.label, measured.sizes), "ratio", "grows"]
    lines = [head, ["---"] * len(head)]
    lines += [[row.figure, *row.cells, row.ratio, row.growth] for row in rows(dimension, measured)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    bound = textwrap.fill(f"Bound: {dimension.bound}", 120, break_long_words=False, break_on_hyphens=False)
    return f"## {dimension.title}\n\n{table}\n\n{bound}\n"


def summary(found: dict[str, Measured]) -> str:
    """The figure of each dimension that grows most."""
    lines = ["| what grows | what grows most with it | how |", "| --- | --- | --- |"]
    for dimension in DIMENSIONS:
        if dimension.title in found and (all_rows := rows(dimension, found[dimension.title])):
            worst = max(all_rows, key=lambda row: row.power)
            lines.append(f"| [{dimension.title}](#{_anchor(dimension.title)}) | {worst.figure} | {worst.growth} |")
    return "\n".join(lines) + "\n"


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


INTRODUCTION = """# What things cost as they grow

Written by `make bench` (`bench/costs.py`) on {date:%d %B %Y}: PostgreSQL {version}, {cores} cores, a server in memory
without fsync, with `synchronous_commit` on. Other load on the machine changes times by 15 % and more: the growth
matters, not the values.

- Each cell has two values. The first is **CPU**: how long the server process of the session ran, by the kernel's
  account (`/proc/PID/schedstat`). The second is **time**: how long the client waited. A single value is a time.
- Each value is the median of several runs in new databases; the sizes alternate. The databases have {finished:,}
  finished jobs, and the planner's statistics are from before the measured jobs arrived, as in production until the next
  ANALYZE.
- **ratio** is the CPU at the largest size that was measured, divided by that at the smallest.
- **grows** is the exponent of the size by which CPU grows: 0 is constant, 1 linear, 2 the square. It is fitted over all
  sizes, or taken from the last two if that is more, because a fixed cost hides growth at small sizes. Up to
  {constant} counts as constant, above {linear} as worse than linear.
- `> {limit:g} s`: the statement was stopped after that time.
- **Bound** says where the engine refuses a request, or splits its work.
"""


def page(found: dict[str, Measured], version: str, options: argparse.Namespace) -> str:
    introduction = INTRODUCTION.format(
        date=datetime.now(UTC),
        version=version,
        cores=os.cpu_count(),
        constant=CONSTANT,
        linear=LINEAR,
        limit=options.limit_seconds,
        finished=FINISHED,
    )
    sections = [section(d, found[d.title]) for d in DIMENSIONS if d.title in found]
    return "\n".join([introduction, summary(found), *sections])


async def main(options: argparse.Namespace) -> None:
    found = {}
    with server(options.server) as url:
        async with connect(url, name="bench") as connection:
            version = (await connection.fetchval("show server_version")).split()[0]
        async with Schema(url) as empty, Schema(url, finished=FINISHED) as in_use:
            for dimension in DIMENSIONS:
                if not any(word in dimension.title.lower() for word in options.only or [""]):
                    continue
                started = time.monotonic()
                found[dimension.title] = await measure(dimension, in_use if dimension.in_use else empty, options)
                print(f"{dimension.title}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if options.json:
        tables = {d.title: [asdict(row) for row in rows(d, found[d.title])] for d in DIMENSIONS if d.title in found}
        print(json.dumps(tables, indent=2))
    elif options.write:
        options.write.write_text(page(found, version, options), encoding="utf-8")
        print(f"{options.write} is written.", file=sys.stderr)
    else:
        print(page(found, version, options))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also measure the largest sizes")
    parser.add_argument("--only", nargs="+", help="dimensions whose titles contain one of these words")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each size, at most (default: 3)")
    parser.add_argument(
        "--dimension-seconds", type=float, default=6, help="start no further round after this time (default: 6)"
    )
    parser.add_argument(
        "--limit-seconds", type=float, default=10, help="stop a statement after this time (default: 10)"
    )
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, help="write the page (default: docs/costs.md)")
    parser.add_argument("--server", help="URL of a server on this machine (default: a new embedded one)")
    parser.add_argument("--json", action="store_true", help="print the rows of the tables as JSON")
    parser.add_argument("--quick", action="store_true", help="a smoke test: the smallest sizes, once")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    asyncio.run(main(options))
