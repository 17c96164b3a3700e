"""Measures what the triggers cost: eight clients insert single rows, with and without triggers.

Also measures a NOTIFY per insert instead of the doorbell. Needs pgbench, which comes with the server.
"""

import argparse
import asyncio
import os
import random
import re
import statistics
import subprocess
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from reactor.database.connection import Connection, connect
from reactor.embedded.binaries import find_programs
from reactor.testing import Databases, server_for_tests

VERSION = 18
VARIANTS = {
    "without triggers": "alter table reactor.jobs disable trigger user",
    "as shipped": "select 1",
    "a NOTIFY per insert": (
        "alter table reactor.jobs disable trigger user; "
        "create function public.notify() returns trigger language plpgsql as "
        "$$ begin perform pg_notify('reactor_jobs', ''); return null; end $$; "
        "create trigger notify after insert on reactor.jobs for each statement execute function public.notify()"
    ),
}
INSERT = "insert into reactor.jobs (job_type, payload) values ('work', '{\"file\": \"a.csv\"}');\n"


def insert_rate(url: str, clients: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "insert.sql"
        script.write_text(INSERT)
        parts = urlsplit(url)
        done = subprocess.run(
            f"{find_programs(VERSION)}/pgbench -n -M prepared -f {script} -c {clients} -j 2 -T {seconds:.0f} "
            f"-h {parse_qs(parts.query)['host'][0]} -U postgres {parts.path[1:]}".split(),
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PGOPTIONS": "-c client_min_messages=warning"},
        )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return float(found[1])


async def listen(connection: Connection, channel: str) -> None:
    await connection.add_listener(channel, lambda *_: None)


async def main(listeners: int, seconds: float, rounds: int) -> None:
    with server_for_tests(version=VERSION) as url:
        databases = Databases(url)
        await databases.prepare()
        rates: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for number in range(1, rounds + 1):
            # In random order, because each variant leaves work for the server that slows down the next one.
            for name in random.sample(list(VARIANTS), len(VARIANTS)):
                async with AsyncExitStack() as stack:
                    clone = await stack.enter_async_context(databases.clone())
                    async with connect(clone, name="bench") as connection:
                        await connection.execute(VARIANTS[name])
                    for _ in range(listeners):
                        await listen(await stack.enter_async_context(connect(clone, name="listener")), "reactor_jobs")
                    rates[name].append(await asyncio.to_thread(insert_rate, clone, 8, seconds))
                print(f"round {number}  {name:20} {rates[name][-1]:8.0f} inserts/s", flush=True)
        base = statistics.median(rates["without triggers"])
        print(f"\n8 clients, {listeners} listeners, median of {rounds}:")
        for name, measured in rates.items():
            rate = statistics.median(measured)
            print(f"{name:20} {rate:8.0f} inserts/s  ratio {rate / base:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8, help="seconds per measurement (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all variants (default: 3)")
    options = parser.parse_args()
    asyncio.run(main(options.listeners, options.seconds, options.rounds))
