"""Connections, and the errors if the server can't be reached."""

import json
import socket
from contextlib import AsyncExitStack
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest

from reactor.database.connection import Connection, connect, open_connection, open_pool
from reactor.database.url import address, with_database, without_password
from reactor.errors import DatabaseUnreachable
from reactor.testing import Databases
from tests.support.link import link_for


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hush@db.example:6432/app", "PostgreSQL at db.example:6432/app"),
        ("postgresql://u@/app?host=/run/pg", "PostgreSQL at /run/pg/app"),
        ("postgresql:///app", "PostgreSQL at localhost/app"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert address(url) == shown


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("postgresql://u:p@h:1/app?sslmode=require", "postgresql://u:p@h:1/new?sslmode=require"),
        ("postgresql:///app?host=/a%20b", "postgresql:///new?host=/a%20b"),
    ],
)
def test_a_url_can_name_another_database(url: str, other: str) -> None:
    assert with_database(url, "new") == other


def test_a_url_can_be_shown_without_its_password() -> None:
    assert without_password("postgresql://u:p%40@h/app") == "postgresql://u@h/app"
    assert without_password("postgresql:///app?host=/run") == "postgresql:///app?host=/run"


async def test_a_session_has_an_application_name(connection: Connection) -> None:
    assert await connection.fetchval("show application_name") == "test"


async def test_the_url_format_of_sqlalchemy_works_too(database: str) -> None:
    async with connect(database.replace("postgresql:", "postgresql+asyncpg:"), name="test") as connection:
        assert await connection.fetchval("select 1") == 1


async def test_a_missing_database_is_reported_with_a_remedy(server: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="createdb nowhere"):
        await open_connection(with_database(server, "nowhere"), name="test")


async def test_a_server_that_is_down_is_reported_with_a_remedy() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(DatabaseUnreachable, match=f"127.0.0.1:{port}/x.*\n.*Is the server running"):
            await open_connection(f"postgresql://u:hush@127.0.0.1:{port}/x", name="test")


async def test_a_connection_attempt_to_a_server_that_does_not_respond_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u:hush@127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(DatabaseUnreachable, match=r"no answer in 0\.2 s") as caught:
            await open_connection(url, name="test", timeout_seconds=0.2)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "http://h/d", "postgresql://h:port/d", "postgresql://h/d?sslmode=maybe"])
async def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="REACTOR_DATABASE_URL"):
        await open_connection(url, name="test", timeout_seconds=2)


async def test_a_refused_login_is_reported_with_a_remedy(server: str) -> None:
    """A user without LOGIN replaces a wrong password, which a server that trusts its socket never asks for."""
    name = f"reactor_test_{uuid4().hex[:8]}"
    async with connect(server, name="test") as admin:
        await admin.execute(f"create role {name} nologin")
        try:
            user = urlsplit(server).username or "postgres"
            with pytest.raises(DatabaseUnreachable, match="not permitted to log in|password") as caught:
                await open_connection(server.replace(f"//{user}", f"//{name}", 1), name="test")
            assert "user and password" in caught.value.remedy
        finally:
            await admin.execute(f"drop role {name}")


async def test_each_test_has_its_own_database(database: str, connection: Connection) -> None:
    name = await connection.fetchval("select current_database()")
    assert name in database
    assert await connection.fetchval("select version_num from reactor.alembic_version")


async def test_a_connection_left_open_is_reported(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "disconnect_seconds", 0.2)
    left: list[Connection] = []
    with pytest.raises(AssertionError, match="left connections open: forgotten"):
        async with databases.clone() as url:
            left.append(await open_connection(url, name="forgotten"))
    left[0].terminate()


ARRAYS: dict[str, Any] = {
    "boolean": True,
    "bytea": b"x",
    "smallint": 1,
    "integer": 1,
    "bigint": 1,
    "real": 0.5,
    "double precision": 0.5,
    "numeric": Decimal(1),
    "varchar": "x",
    "uuid": UUID(int=1),
    "json": "{}",
    "jsonb": "{}",
    "date": date(2026, 1, 16),
    "timestamp": datetime(2026, 1, 16),
    "timestamptz": datetime(2026, 1, 16, tzinfo=UTC),
    "interval": timedelta(days=1),
}


@pytest.mark.parametrize("kind", ["engine", "pool"])
async def test_arrays_of_common_types_need_no_question_to_the_server(database: str, kind: str) -> None:
    """asyncpg asks for the types of each new connection, in six round trips."""
    async with AsyncExitStack() as stack:
        link, url = await stack.enter_async_context(link_for(database))
        if kind == "engine":
            own: Any = await stack.enter_async_context(connect(url, name="test"))
        else:
            pool = await stack.enter_async_context(await open_pool(url, name="test", size=1))
            own = await stack.enter_async_context(pool.acquire())
        for name, value in ARRAYS.items():
            link.round_trips.clear()
            assert await own.fetchval(f"select $1::{name}[]", [value, None]) == [value, None]
            assert link.round_trips["test"] == 2, name
        # A codec that is set for the elements is used for the array, too.
        await own.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        assert await own.fetchval("select $1::jsonb[]", [{"a": 1}]) == [{"a": 1}]
