import os
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from reactor.database.connection import Connection
from tests.clients.routes import direct
from tests.clients.run import PASSWORD, environment


@pytest.fixture
async def producer(database: str, connection: Connection) -> AsyncIterator[dict[str, str]]:
    """The environment of a producer's program."""
    login = f"page_{uuid4().hex[:12]}"
    await connection.execute(f"create role {login} login password '{PASSWORD}' in role reactor_producer")
    async with direct(database) as (host, port):
        name = await connection.fetchval("select current_database()")
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "REACTOR_"))}
        yield outside | environment(host, port, login, name)
    await connection.execute(f"drop role {login}")
