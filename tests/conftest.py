"""Fixtures: a server per session, a migrated database of its own per test."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reactor.database import Connection, connect
from reactor.embedded import installed_versions
from reactor.lease import Worker, register_worker
from reactor.testing import Databases, quick_folder, server_for_tests

Row = Callable[[int], Awaitable[dict[str, Any]]]


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
