"""A server process whose CPU time, wall time and WAL are measured, in a database built from any checkout's sql/schema.

Used by core.py and costs.py. CPU time is the kernel's own account of the process (`/proc/PID/schedstat`, in
nanoseconds), so that other load on the machine affects it little.
"""

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import uuid4

import asyncpg

from reactor.database.connection import Connection, connect
from reactor.database.url import with_database
from reactor.embedded import start_embedded
from reactor.job import Job
from reactor.testing import server_for_tests
from reactor.worker.marks import Marks

HERE = Path(__file__).resolve().parent.parent
JOB_TYPE = "work"
VERSION = 18


@contextmanager
def server(url: str | None, *, durable: bool = False) -> Iterator[str]:
    """A PostgreSQL on this machine: `url` if given, else a new one in memory; with `durable`, on disk with fsync."""
    if url or not durable:
        with server_for_tests(url, version=None if url else VERSION) as running:
            yield running
        return
    folder = Path(tempfile.mkdtemp(prefix="reactor-bench-", dir="/tmp"))
    folder.chmod(0o711)
    try:
        with start_embedded(folder, version=VERSION, options={"full_page_writes": "off"}) as embedded:
            yield embedded.url()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Cost:
    """What some statements took."""

    cpu_us: float = 0
    wall_us: float = 0
    wal_bytes: float = 0

    def __add__(self, other: Self) -> "Cost":
        return Cost(self.cpu_us + other.cpu_us, self.wall_us + other.wall_us, self.wal_bytes + other.wal_bytes)

    def __truediv__(self, count: float) -> "Cost":
        return Cost(self.cpu_us / count, self.wall_us / count, self.wal_bytes / count)


class Schema:
    """A template database with the schema of one checkout, and clones of it."""

    def __init__(self, server_url: str, tree: Path = HERE, *, finished: int = 0) -> None:
        """`finished`: the number of finished jobs in each database, which its statistics describe."""
        self._server_url = server_url
        self._tree = tree
        self._finished = finished
        self._name = f"reactor_bench_{uuid4().hex[:12]}"
        self._made = 0

    async def __aenter__(self) -> Self:
        async with connect(self._server_url, name="bench") as admin:
            await admin.execute(f"create database {self._name}")
        async with connect(with_database(self._server_url, self._name), name="bench") as connection:
            for name in ("roles", "prepare"):  # older checkouts have one script for both
                script = self._tree / "migrations" / f"{name}.sql"
                if script.exists():
                    await connection.execute(script.read_text())
            await connection.execute("set role reactor_owner")
            await connection.execute(_with_includes(self._tree / "sql" / "schema" / "schema.sql"))
        if self._finished:
            async with open_backend(with_database(self._server_url, self._name)) as backend:
                await backend.insert(1)
                await backend.run(1, 1)
                await backend.copy(1, self._finished - 1)
                await backend.vacuum()
        return self

    async def __aexit__(self, *_: object) -> None:
        async with connect(self._server_url, name="bench") as admin:
            await admin.execute(f"drop database if exists {self._name} with (force)")

    @asynccontextmanager
    async def clone(self) -> AsyncIterator[str]:
        self._made += 1
        name = f"{self._name}_{self._made}"
        async with connect(self._server_url, name="bench") as admin:
            # Copying files takes two checkpoints, which are cheap without fsync only.
            strategy = "file_copy" if await admin.fetchval("show fsync") == "off" else "wal_log"
            await admin.execute(f"create database {name} template {self._name} strategy {strategy}")
            try:
                yield with_database(self._server_url, name)
            finally:
                await admin.execute(f"drop database {name} with (force)")

    @asynccontextmanager
    async def backend(self) -> AsyncIterator["Backend"]:
        """A backend in a new database."""
        async with self.clone() as url, open_backend(url) as backend:
            yield backend


def _with_includes(script: Path) -> str:
    return re.sub(r"^\\ir (\S+)$", lambda line: _with_includes(script.parent / line[1]), script.read_text(), flags=re.M)


@asynccontextmanager
async def open_backend(url: str) -> AsyncIterator["Backend"]:
    async with connect(url, name="bench") as connection:
        backend = Backend(url, connection)
        await backend.prepare()
        yield backend


class Backend:
    """A session with a registered worker. Every statement that it measures commits."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self.connection = connection
        self._worker_id = uuid4()
        self._claim = ""
        self._settle = ""
        self._marks = Marks()
        self._again = False
        self._pid = 0

    async def prepare(self) -> None:
        self._pid = await self.connection.fetchval("select pg_backend_pid()")
        await self.connection.execute("set synchronous_commit = on")
        self._claim = await self._call("claim", ["worker_id", "batch", "queues", "types", "quotas", "marks"])
        self._settle = await self._call("settle", ["ids", "attempt_ids", "outcomes", "errors"])
        await self.connection.execute(
            "insert into reactor.workers (id, pod, job_types, capacity, lease_until) "
            "values ($1, 'bench', '{}', 1, now() + interval '1 day')",
            self._worker_id,
        )

    async def _call(self, function: str, ours: Sequence[str]) -> str:
        """The call with our arguments. Checkouts differ in the others, which take their default or NULL."""
        row = await self.connection.fetchrow(
            "select proargnames[:pronargs] as names, proargtypes::regtype[]::text[] as types, "
            "pronargdefaults as defaults from pg_proc where oid = $1::text::regproc",
            f"reactor.{function}",
        )
        assert row
        required = len(row["names"]) - row["defaults"]
        arguments = [
            f"{name} => ${ours.index(name) + 1}::{kind}" if name in ours else f"{name} => null::{kind}"
            for n, (name, kind) in enumerate(zip(row["names"], row["types"], strict=True))
            if name in ours or n < required
        ]
        return f"select * from reactor.{function}({', '.join(arguments)})"

    def _cpu_us(self) -> float:
        # Read from /proc, which never blocks.
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0]) / 1000

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Cost]:
        """The cost of the block; it is known when the block ends. Its two queries of the WAL's end are outside."""
        cost = Cost()
        start = await self.wal_end()
        started, cpu = time.perf_counter(), self._cpu_us()
        try:
            yield cost
        finally:
            cost.cpu_us, cost.wall_us = self._cpu_us() - cpu, (time.perf_counter() - started) * 1e6
        cost.wal_bytes = await self.wal_end() - start

    async def cost(self, statement: str, *arguments: object) -> Cost:
        async with self.measured() as cost:
            await self.connection.execute(statement, *arguments, timeout=3600)
        return cost

    async def wal_end(self) -> int:
        return int(await self.connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'"))

    async def claim(
        self, batch: int, types: Sequence[str] = (JOB_TYPE,), queues: Sequence[str] | None = ("default",)
    ) -> list[asyncpg.Record]:
        """One claim. Like a worker, it starts where the last one did while walking there from the beginning is slow."""
        arguments = [self._worker_id, batch, queues, types, [3] * len(types)]
        if "marks =>" not in self._claim:
            return await self.connection.fetch(self._claim, *arguments)
        started = time.monotonic()
        marks = self._marks.next(started)
        jobs = await self.connection.fetch(self._claim, *arguments, marks)
        # A last row without an id says that the claim may have left some.
        last = jobs.pop() if jobs and jobs[-1]["id"] is None else None
        self._again = last is not None and last["job_type"] == "again"
        found = [Job(*job) for job in jobs]
        now = time.monotonic()
        self._marks.claimed(found, limit=batch, used=marks is not None, took_seconds=now - started, now=now)
        return jobs

    async def settle(self, jobs: Sequence[asyncpg.Record], outcome: str = "completed") -> None:
        held = sorted((job["id"], job["attempt_id"]) for job in jobs)
        errors = None if outcome == "completed" else ["bench"] * len(held)
        await self.connection.fetch(
            self._settle,
            [job_id for job_id, _ in held],
            [attempt for _, attempt in held],
            [outcome] * len(held),
            errors,
        )

    async def run(self, jobs: int, batch: int) -> tuple[Cost, Cost]:
        """Claims and ends this many jobs. Returns the costs of claims and of settles."""
        claims, settles = Cost(), Cost()
        empty = 0
        while jobs > 0 and empty < 100:
            async with self.measured() as cost:
                claimed = await self.claim(min(jobs, batch))
            claims += cost
            if claimed:
                async with self.measured() as cost:
                    await self.settle(claimed)
                settles += cost
            # A claim may also return nothing because it was stopped early.
            empty = 0 if claimed else empty + 1
            jobs -= len(claimed)
        assert jobs == 0, f"{jobs} jobs were not claimed"
        return claims, settles

    async def take(
        self, count: int, types: Sequence[str] = (JOB_TYPE,), queues: Sequence[str] | None = ("default",)
    ) -> list[asyncpg.Record]:
        """Claims this many jobs, as a worker does: again, when a claim returned only some of them."""
        taken = await self.claim(count, types, queues)
        while len(taken) < count and ((more := await self.claim(count - len(taken), types, queues)) or self._again):
            taken += more
        return taken

    def forget_marks(self) -> None:
        """The next claim starts at the beginning."""
        self._marks = Marks()

    async def finish_ends(self) -> None:
        """Large consequences of an end happen in transactions of their own, which pods run; here this session does."""
        if await self.connection.fetchval("select to_regproc('reactor.resolve_more') is not null"):
            more = "select next_in_seconds from reactor.resolve_more(1000)"
            while (pause := await self.connection.fetchval(more, timeout=3600)) is not None:
                await asyncio.sleep(pause)

    async def insert(self, count: int, columns: str = "", values: str = "", job_type: str = f"'{JOB_TYPE}'") -> None:
        """Inserts jobs as a producer does; `columns` and `values` of the series `i` start with a comma."""
        await self.connection.execute(
            f"insert into reactor.jobs (job_type{columns}) select {job_type}{values} "
            f"from generate_series(1, {count}) i order by i",
            timeout=3600,
        )

    async def copy(self, job_id: int, count: int) -> None:
        """Copies of one job's row, each its own pipeline. Without triggers, which would take most of the time; what
        they would have set was set in the row that is copied."""
        columns = await self.connection.fetchval(
            "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute "
            "where attrelid = 'reactor.jobs'::regclass and attnum > 0 and not attisdropped and attgenerated = '' "
            "and attname not in ('id', 'pipeline_id')"
        )
        await self.connection.execute("set session_replication_role = replica")
        await self.connection.execute(
            f"insert into reactor.jobs ({columns}) select {columns} from reactor.jobs, generate_series(1, {count}) "
            f"where id = {job_id}",
            timeout=3600,
        )
        await self.connection.execute("set session_replication_role = origin")

    async def vacuum(self, *, analyze: bool = True) -> None:
        await self.connection.execute("vacuum analyze" if analyze else "vacuum", timeout=3600)


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """A transaction that stays open, so that no row version that it may read can be removed."""
    async with connect(url, name="holder") as connection, connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("select txid_current()")
        yield


@asynccontextmanager
async def schemas(server_url: str, trees: Sequence[Path]) -> AsyncIterator[list[Schema]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Schema(server_url, tree)) for tree in trees]
