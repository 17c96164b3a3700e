"""Helpers for users' tests: a real PostgreSQL, a migrated database per test, and `run_until_idle`."""

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
from reactor.database import statements
from reactor.database.connection import connect
from reactor.database.migrate import migrate
from reactor.database.url import with_database
from reactor.embedded import start_embedded
from reactor.handlers.registry import Registry, default
from reactor.job import JobState
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.settings import Settings
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.options import WorkerOptions

# Tests don't need their data after a crash.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_MIN_FREE_BYTES = 2 * 1024**3


@contextmanager
def server_for_tests(url: str | None = None, version: int | None = None) -> Iterator[str]:
    """The URL of a server: `url` if given, else a container if Docker is available, else an embedded server.

    With `version`, an embedded server of that version.
    """
    if url:
        yield url
    elif version is None and _docker_answers():
        with _container() as url:
            yield url
    else:
        with _embedded(version or Settings.model_fields["embedded_version"].default) as url:
            yield url


def fast_temporary_folder() -> Path:
    """A folder in memory if there is space: a database has about 300 files, which take a disk up to 0.3 s to create.

    Never TMPDIR, because the path of a socket must be short, and root's server runs as another user.
    """
    memory = Path("/dev/shm")  # noqa: S108 (mkdtemp creates what goes there)
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _MIN_FREE_BYTES:
        return memory
    return Path("/tmp")  # noqa: S108


class Databases:
    """Migrated databases on one server, cloned from one template."""

    def __init__(self, server_url: str, *, disconnect_seconds: float = 5.0) -> None:
        """`disconnect_seconds`: how long closed connections may take to disappear from the server."""
        self._server_url = server_url
        self.disconnect_seconds = disconnect_seconds
        self._name = f"reactor_test_{uuid4().hex[:12]}"
        self._made = 0
        self._strategy = "wal_log"

    async def prepare(self) -> None:
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"create database {self._name}")
            # Copying files is faster, except for its two checkpoints, which are only cheap without fsync.
            self._strategy = "file_copy" if await admin.fetchval("show fsync") == "off" else "wal_log"
        await migrate(with_database(self._server_url, self._name))

    async def remove(self) -> None:
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"drop database if exists {self._name} with (force)")

    @asynccontextmanager
    async def clone(self) -> AsyncIterator[str]:
        """A database for one test. Connections left open in it fail the test."""
        self._made += 1
        name = f"{self._name}_{self._made}"
        async with connect(self._server_url, name="reactor tests") as admin:
            await admin.execute(f"create database {name} template {self._name} strategy {self._strategy}")
            try:
                yield with_database(self._server_url, name)
            finally:
                leaked = await _open_connections(admin, name, self.disconnect_seconds)
                await admin.execute(f"drop database if exists {name} with (force)")
        if leaked:
            raise AssertionError(f"the test left connections open: {', '.join(leaked)}")


async def run_until_idle(
    url: str, registry: Registry = default, *, skip_delays: bool = False, concurrency: int = 10
) -> dict[JobState, int]:
    """Runs all due jobs, and those that become due as a result, in this process. Returns the number of attempts per
    resulting state.

    With `skip_delays`, delayed jobs and retries run immediately, so that tests need not wait.
    """
    worker = Worker("test", registry.job_types, capacity=concurrency)
    async with connect(url, name="reactor tests") as connection:
        await register_worker(connection, worker, 3600)
        counts = Counts()
        while True:
            if skip_delays:
                await connection.execute(statements.SKIP_DELAYS)
            claim_loop = ClaimLoop(WorkerOptions(url, url, once=True), registry, worker)
            claim_loop.counts = counts
            ended = counts.ended
            await claim_loop.run()
            if counts.ended == ended or not skip_delays:
                break
        await retire_worker(connection, worker.id)
    return counts.states


async def _open_connections(
    admin: "asyncpg.Connection[asyncpg.Record]", database: str, within_seconds: float
) -> list[str]:
    """Sessions that stay open. A session may end a moment after its connection was closed."""
    deadline = time.monotonic() + within_seconds
    while True:
        rows = await admin.fetch(statements.LIST_SESSIONS, database)
        if not rows or time.monotonic() > deadline:
            return [row["session"] for row in rows]
        await asyncio.sleep(0.01)


@contextmanager
def _embedded(version: int) -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="reactor-test-", dir=fast_temporary_folder()))
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
        return True  # set on purpose, so a failure should be visible
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0
