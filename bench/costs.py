"""Measures how costs grow, one dimension at a time, and writes docs/costs.md.

The sizes of a dimension are measured in turn, each in a new database, and medians are compared. Without --full the
largest sizes are left out, and nothing is written unless --write is given.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import asyncpg

from bench.backend import HERE, Cost, Schema, server
from bench.dimensions import DIMENSIONS, Dimension, Meter
from reactor.database.connection import connect

PAGE = HERE / "docs" / "costs.md"
CONSTANT, LINEAR = 0.25, 1.15  # exponents; a factor of 1.8 and of 14 where the size grows by 10


@dataclass
class Measured:
    """The costs of one dimension: by figure and size."""

    sizes: list[int]
    costs: dict[str, dict[int, list[Cost]]] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    """Sizes that could not be measured, with the reason."""

    def medians(self, figure: str, unit: str) -> dict[int, float]:
        values = {
            size: statistics.median(getattr(cost, unit) for cost in costs)
            for size, costs in self.costs[figure].items()
            if costs
        }
        return values if any(values.values()) else {}


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
                    await dimension.run(backend, size, meter)
                except asyncpg.QueryCanceledError:
                    measured.stopped[size] = f"> {options.limit_seconds:g} s"
                except asyncpg.PostgresError as error:
                    measured.stopped[size] = f"refused: {error}"
                for figure, costs in meter.costs.items():
                    measured.costs.setdefault(figure, {}).setdefault(size, []).extend(costs)
        if time.monotonic() - started > options.dimension_seconds:
            break
    return measured


def exponent(values: dict[int, float]) -> float:
    """The power of the size by which the cost grows: over all sizes, or from the last but one to the largest if that is
    more, because a fixed part hides growth at small sizes."""
    points = [(math.log(size), math.log(value)) for size, value in values.items()]
    slopes = [statistics.linear_regression(*zip(*points, strict=True)).slope]
    (size, value), (larger, more) = points[-2:]
    return max(*slopes, (more - value) / (larger - size))


def growth(values: dict[int, float]) -> str:
    if len(values) < 2:
        return "–"
    power = exponent(values)
    if power <= CONSTANT:
        name = "constant"
    elif power <= LINEAR:
        name = "linear" if power > 0.75 else "less than linear"
    else:
        name = "**worse**"
    return f"{name} ({power:.1f})"


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


def rows(dimension: Dimension, measured: Measured) -> list[list[str]]:
    """A row per figure and unit: the value at each size, the largest as a ratio to the smallest, and how it grows."""
    units = {"CPU": ("cpu_us", in_time), "time": ("wall_us", in_time)}
    if dimension.shows_wal:
        units["WAL"] = ("wal_bytes", in_bytes)
    found = []
    for figure in measured.costs:
        for unit, (attribute, show) in units.items():
            if not (values := measured.medians(figure, attribute)):
                continue
            cells = [
                show(values[size]) if size in values else next(iter(measured.stopped.values()), "–")
                for size in measured.sizes
            ]
            ratio = list(values.values())[-1] / list(values.values())[0]
            found.append([f"{figure}, {unit}", *cells, f"{ratio:,.3g}", growth(values)])
    return found


def section(dimension: Dimension, measured: Measured) -> str:
    head = [dimension.grows, *map(dimension.label, measured.sizes), "ratio", "grows"]
    lines = [head, ["---"] * len(head), *rows(dimension, measured)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {dimension.title}\n\n{table}\n\nBound: {dimension.bound}\n"


INTRODUCTION = """# What things cost as they grow

Written by `make bench` (`bench/costs.py`) on {date:%d %B %Y}: PostgreSQL {version}, {cores} cores, a server in memory
without fsync, with `synchronous_commit` on. Other load on the machine changes times by 15 % and more: the growth
matters, not the values.

- **CPU** is the time that the server process of the measured session was running, from the kernel
  (`/proc/PID/schedstat`). **Time** is what the client waited, with the transfer. **WAL** is what the statements wrote.
- Each value is the median of several runs, each in a new database. The sizes alternate.
- **ratio** compares the largest size that was measured with the smallest one.
- **grows** is the exponent of the size: 0 is constant, 1 linear, 2 the square. It is fitted over all sizes, or taken
  from the last two if that is more, because a fixed cost hides growth at small sizes. Up to {constant} counts as
  constant, above {linear} as worse than linear.
- `> {limit:g} s` was stopped after that time.
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
    )
    by_title = {dimension.title: dimension for dimension in DIMENSIONS}
    return "\n".join([introduction, *(section(by_title[title], measured) for title, measured in found.items())])


async def main(options: argparse.Namespace) -> None:
    found = {}
    with server(options.server) as url:
        async with connect(url, name="bench") as connection:
            version = ".".join(map(str, connection.get_server_version()[:2]))
        async with Schema(url) as schema:
            for dimension in DIMENSIONS:
                if not any(word in dimension.title.lower() for word in options.only or [""]):
                    continue
                started = time.monotonic()
                found[dimension.title] = await measure(dimension, schema, options)
                print(f"{dimension.title}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    by_title = {dimension.title: dimension for dimension in DIMENSIONS}
    if options.json:
        print(json.dumps({title: rows(by_title[title], measured) for title, measured in found.items()}))
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
    parser.add_argument("--limit-seconds", type=float, default=10, help="stop a statement after this time (default: 10)")
    parser.add_argument("--write", type=Path, nargs="?", const=PAGE, help="write the page (default: docs/costs.md)")
    parser.add_argument("--server", help="URL of a server on this machine (default: a new embedded one)")
    parser.add_argument("--json", action="store_true", help="print the rows of the tables as JSON")
    parser.add_argument("--quick", action="store_true", help="a smoke test: the smallest sizes, once")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    asyncio.run(main(options))
