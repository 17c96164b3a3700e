"""The line: one owner's connection, opened again whenever the server went away."""

import asyncio

import pytest

from reactor.database.connection import Connection
from reactor.database.reconnecting import Line


@pytest.mark.parametrize("turns", range(4))
async def test_a_server_that_says_goodbye_between_two_statements_is_called_again(
    database: str, connection: Connection, turns: int
) -> None:
    """A restart, or pg_terminate_backend: its goodbye may be unread, half read or read by the next statement."""
    line = Line(database, "victim")
    for _ in range(5):
        pid, _ = await line.insist(lambda c: c.fetchval("select pg_backend_pid()"))
        await connection.execute(f"select pg_terminate_backend({pid})")
        for _ in range(turns):
            await asyncio.sleep(0)
        answer, lost = await line.insist(lambda c: c.fetchval("select 1"))
        assert answer == 1
        assert isinstance(lost, bool)
    await line.close()
