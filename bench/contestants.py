"""The contestants of drain.py, and how each of them stores and runs jobs."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from reactor.database.connection import connect

HERE = Path(__file__).parent
PEER_HOME = HERE.parent / "build" / "bench-pgqueuer"
PEER = [str(PEER_HOME / "bin" / "python"), str(HERE / "pgqueuer_peer.py")]
GAP_SECONDS = 0.02


@dataclass(frozen=True)
class System:
    """A job system: its schema, how to insert jobs, and how to measure them."""

    install: Callable[[str], Awaitable[None]]
    fill: Callable[[str, int], Awaitable[None]]
    insert: Callable[[str, int], Awaitable[dict[int, int]]]
    unfinished: str
    drain_seconds: str


@dataclass(frozen=True)
class Contestant:
    system: System
    drain: list[str]
    """The command. URL in it is replaced by that of the database, which is also in REACTOR_DATABASE_URL."""
    lone: list[str] | None
    """The same command, recording starts in the file BENCH_STARTS. None: only drains."""


async def no_install(_: str) -> None:
    """The database is a clone that has reactor's schema."""


async def fill(url: str, jobs: int) -> None:
    async with connect(url, name="bench") as connection:
        await connection.execute(
            "insert into reactor.jobs (job_type, payload) "
            "select 'noop', jsonb_build_object('i', i) from generate_series(1, $1::int) i",
            jobs,
        )


async def insert(url: str, jobs: int) -> dict[int, int]:
    committed = {}
    async with connect(url, name="bench") as connection:
        for i in range(jobs):
            await connection.execute(
                "insert into reactor.jobs (job_type, payload) values ('noop', $1)", json.dumps({"i": i})
            )
            committed[i] = time.time_ns()
            await asyncio.sleep(GAP_SECONDS)
    return committed


async def peer(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(*PEER, *arguments, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, f"pgqueuer_peer.py {arguments[0]} failed"
    return output.decode()


async def peer_install(url: str) -> None:
    await peer("install", url)


async def peer_fill(url: str, jobs: int) -> None:
    await peer("fill", url, str(jobs))


async def peer_insert(url: str, jobs: int) -> dict[int, int]:
    committed = json.loads(await peer("insert", url, str(jobs), str(GAP_SECONDS)))
    return {int(i): at for i, at in committed.items()}


OURS = System(
    no_install,
    fill,
    insert,
    "select count(*) from reactor.jobs where finished_at is null",
    "select extract(epoch from max(finished_at) - min(locked_at))::float8 from reactor.jobs",
)
PGQUEUER = System(
    peer_install,
    peer_fill,
    peer_insert,
    "select count(*) from pgqueuer",
    "select extract(epoch from max(created) filter (where status = 'successful')"
    " - min(created) filter (where status = 'picked'))::float8 from pgqueuer_log",
)


def contestants(concurrency: int) -> dict[str, Contestant]:
    bare = [sys.executable, str(HERE / "bare.py"), "URL"]
    program = [sys.executable, "-m", "reactor", "worker", "--app", "noop_handlers", "--concurrency", str(concurrency)]
    return {
        **{
            f"bare, batches of {batch}": Contestant(
                OURS, [*bare, str(batch)], [*bare, "10", "BENCH_STARTS"] if batch == 200 else None
            )
            for batch in (100, 200, 500)
        },
        # The best two of pool and connection with batches of 100, 250 and 500; which one is faster varies.
        "pgqueuer, pool, 250": Contestant(
            PGQUEUER, [*PEER, "work", "URL", "pool", "250"], [*PEER, "work", "URL", "pool", "10"]
        ),
        "pgqueuer, connection, 500": Contestant(PGQUEUER, [*PEER, "work", "URL", "connection", "500"], None),
        "pgqueuer, defaults": Contestant(
            PGQUEUER, [*PEER, "work", "URL", "connection", "10"], [*PEER, "work", "URL", "connection", "10"]
        ),
        "reactor": Contestant(OURS, program, program),
    }


def missing_requirement(name: str) -> str | None:
    """Why this contestant can't take part, if so."""
    if name == "reactor":
        done = subprocess.run([sys.executable, "-m", "reactor", "worker", "--help"], capture_output=True)
        return None if done.returncode == 0 else "`reactor worker` does not run"
    if name.startswith("pgqueuer") and not (PEER_HOME / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PEER_HOME], check=True)
        packages = ["pgqueuer[asyncpg]", "uvloop"]
        if subprocess.run(
            [PEER[0], "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages]
        ).returncode:
            return "pip could not install it"
        (PEER_HOME / "made").touch()
    return None
