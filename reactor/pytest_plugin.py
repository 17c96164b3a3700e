"""pytest fixtures for users' tests: put `pytest_plugins = ["reactor.pytest_plugin"]` into conftest.py."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from reactor.testing import Databases, server_for_tests


@pytest.fixture(scope="session")
def reactor_server() -> Iterator[str]:
    """The URL of a real PostgreSQL: REACTOR_TEST_DATABASE_URL, else a container, else an embedded server."""
    with server_for_tests(os.environ.get("REACTOR_TEST_DATABASE_URL")) as url:
        yield url


@pytest.fixture(scope="session")
def reactor_databases(reactor_server: str) -> Iterator[Databases]:
    databases = Databases(reactor_server)
    asyncio.run(databases.prepare())
    yield databases
    asyncio.run(databases.remove())


@pytest.fixture
def reactor_database(reactor_databases: Databases) -> Iterator[str]:
    """The URL of a migrated database for this test alone. Connections left open in it fail the test."""
    # Its own event loop, so that the fixture works with every asynchronous framework and without one.
    with asyncio.Runner() as runner:
        clone = reactor_databases.clone()
        yield runner.run(clone.__aenter__())
        runner.run(clone.__aexit__(None, None, None))
