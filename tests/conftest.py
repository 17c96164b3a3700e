"""Fixtures: a server per session, a migrated database of its own per test."""

import asyncio
import importlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from reactor.database import Connection, connect
from reactor.embedded import installed_versions
from reactor.lease import Worker, register_worker
from reactor.log import get_logger
from reactor.registry import Registry
from reactor.runner import Plan, Runner
from reactor.testing import Databases, quick_folder, server_for_tests

Row = Callable[[int], Awaitable[dict[str, Any]]]
Events = list[MutableMapping[str, Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker("database")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("REACTOR_") and not name.startswith("REACTOR_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server that may do everything (CONTRIBUTING.md says how it is chosen)."""
    version = int(os.environ.get("REACTOR_TEST_PG") or 0) or None
    if version and version not in installed_versions():
        pytest.exit(f"PG={version}: no such PostgreSQL here, only {installed_versions()}", returncode=2)
    with server_for_tests(os.environ.get("REACTOR_TEST_DATABASE_URL"), version) as url:
        yield url


@pytest.fixture(scope="session")
def databases(server: str) -> Iterator[Databases]:
    databases = Databases(server)
    asyncio.run(databases.prepare())
    yield databases
    asyncio.run(databases.remove())


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[str]:
    """The address of a migrated database that only this test uses."""
    async with databases.clone() as url:
        yield url


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    async with connect(database, name="test") as connection:
        yield connection


@pytest.fixture
async def worker(connection: Connection) -> Worker:
    """A live worker that has a handler for `work`."""
    worker = Worker("pod-1", {"work": None}, capacity=10)
    await register_worker(connection, worker, 600)
    return worker


@pytest.fixture
def row(connection: Connection) -> "Row":
    """A job's row, as a dict, by its id."""

    async def fetch(job_id: int) -> dict[str, Any]:
        found = await connection.fetchrow("select * from reactor.jobs where id = $1", job_id)
        assert found, f"there is no job {job_id}"
        return dict(found)

    return fetch


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path that the account of root's embedded server may enter too."""
    folder = Path(tempfile.mkdtemp(prefix="reactor-test-", dir=quick_folder()))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def registry() -> Registry:
    """Handlers of this test alone."""
    return Registry()


@pytest.fixture
def running(database: str, registry: Registry) -> Callable[..., AbstractAsyncContextManager[Runner]]:
    """A runner that works, with the handlers of the test, until the block is left; `queues`: what it claims itself."""

    @asynccontextmanager
    async def run(*queues: str, **plan: Any) -> AsyncIterator[Runner]:
        worker = Worker("pod-1", registry.job_types, queues, capacity=10)
        async with connect(database, name="test") as connection:
            await register_worker(connection, worker, 600)
        runner = Runner(Plan(database, database, **plan), registry, worker)
        task = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(20):
                while not runner.is_listening and not task.done():
                    await asyncio.sleep(0.005)
            yield runner
        finally:
            runner.interrupt()
            async with asyncio.timeout(20):
                await task

    return run


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    """What the engine and its handlers log meanwhile."""
    for module in map(importlib.import_module, ("reactor.context", "reactor.crew", "reactor.runner")):
        # A new one: another test may have had this logger keep its configuration for good.
        monkeypatch.setattr(module, "log", get_logger(module.__name__))
    with structlog.testing.capture_logs() as events:
        yield events
