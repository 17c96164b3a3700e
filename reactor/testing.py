"""For tests of code that uses reactor: a real PostgreSQL, and a migrated database of its own for every test."""

import asyncio
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg

from reactor.counts import Counts
from reactor.database.connection import connect, with_database
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from reactor.handlers.registry import Registry, default
from reactor.job import JobState
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.settings import Settings
from reactor.worker.claim_loop import ClaimLoop, WorkerOptions

# Tests start from nothing each time, so there is nothing to lose in a crash.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_LEAK_SECONDS = 5.0
_SKIP_DELAYS = "update reactor.jobs set run_after = null where state = 'pending' and run_after is not null"
_ROOM_BYTES = 2 * 1024**3


@contextmanager
def server_for_tests(url: str | None = None, version: int | None = None) -> Iterator[str]:
    """The server at `url`; else a container where a Docker engine answers; else an embedded one.

    With a version it is an embedded server of that version.
    """
    if url:
        yield url
    elif version is None and _docker_answers():
        with _container() as url:
            yield url
    else:
        with _embedded(version or Settings.model_fields["embedded_version"].default) as url:
            yield url


def quick_folder() -> Path:
    """In memory where there is room: a database has some 300 files, and a disk can take a third of a second for them.

    Never TMPDIR: a socket's path must be short, and root's server runs as another user.
    """
    memory = Path("/dev/shm")  # noqa: S108 (mkdtemp makes what is put there)
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_BYTES:
        return memory
    return Path("/tmp")  # noqa: S108


class Databases:
    """Migrated databases on one server, each a quick clone of one template."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._name = f"reactor_test_{uuid4().hex[:12]}"
        self._made = 0
        self._strategy = "wal_log"

    async def prepare(self) -> None:
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"create database {self._name}")
            # Copying files is quicker, but for the two checkpoints: they cost nothing where nothing is synced.
            self._strategy = "file_copy" if await admin.fetchval("show fsync") == "off" else "wal_log"
        await migrate(with_database(self._server_url, self._name))

    async def remove(self) -> None:
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"drop database if exists {self._name} with (force)")

    @asynccontextmanager
    async def clone(self) -> AsyncIterator[str]:
        """A database for one test. Connections that the test leaves open fail it."""
        self._made += 1
        name = f"{self._name}_{self._made}"
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"create database {name} template {self._name} strategy {self._strategy}")
            try:
                yield with_database(self._server_url, name)
            finally:
                leaked = await _connections_left(admin, name)
                await admin.execute(f"drop database if exists {name} with (force)")
        if leaked:
            raise AssertionError(f"the test left connections open: {', '.join(leaked)}")


async def run_until_idle(
    url: str, registry: Registry = default, *, skip_delays: bool = False, concurrency: int = 10
) -> dict[JobState, int]:
    """Runs every job that is due, and what those make due, in this process. Returns how many attempts left which state.

    With `skip_delays` scheduled jobs and retries are due at once, so that a test of them need not wait.
    """
    worker = Worker("test", registry.job_types, capacity=concurrency)
    async with connect(url, name="reactor tests") as connection:
        await register_worker(connection, worker, 3600)
        counts = Counts()
        while True:
            if skip_delays:
                await connection.execute(_SKIP_DELAYS)
            claim_loop = ClaimLoop(WorkerOptions(url, url, once=True), registry, worker)
            claim_loop.counts = counts
            ended = counts.ended
            await claim_loop.run()
            if counts.ended == ended or not skip_delays:
                break
        await retire_worker(connection, worker.id)
    return counts.states


async def _connections_left(admin: "asyncpg.Connection[asyncpg.Record]", database: str) -> list[str]:
    """A session that was closed a moment ago may not have ended yet."""
    deadline = time.monotonic() + _LEAK_SECONDS
    while True:
        rows = await admin.fetch(
            "select format('%s (%s: %s)', application_name, state, left(query, 80)) as session from pg_stat_activity "
            "where datname = $1 and backend_type = 'client backend'",
            database,
        )
        if not rows or time.monotonic() > deadline:
            return [row["session"] for row in rows]
        await asyncio.sleep(0.01)


@contextmanager
def _embedded(version: int) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="reactor-test-", dir=quick_folder()))
    try:
        if os.geteuid() == 0:
            folder.chmod(0o711)
        with start_embedded(folder, version=version, options=_FAST) as server:
            yield server.url()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.postgres import PostgresContainer

    with PostgresContainer("postgres:18", driver=None) as container:
        yield container.get_connection_url()


def _docker_answers() -> bool:
    if importlib.util.find_spec("testcontainers") is None:
        return False
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not host.startswith("unix://"):
        return True  # somebody set it: let a failure show
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0
