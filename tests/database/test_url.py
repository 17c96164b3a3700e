"""URLs as people have them: of providers, of other drivers, and with mistakes in them."""

import asyncio
import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reactor.database.connection import connect, open_connection
from reactor.database.url import address, parse, with_database, without_password
from reactor.embedded import start_embedded
from reactor.errors import DatabaseUnreachable
from reactor.settings import read_settings


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql+psycopg", "postgres"])
async def test_the_schemes_of_sqlalchemy_are_accepted(database: str, scheme: str) -> None:
    url = database.replace("postgresql", scheme, 1)
    assert read_settings({"REACTOR_DATABASE_URL": url, "REACTOR_LISTEN_URL": url}).listen_url
    async with connect(url, name="test") as connection:
        assert await connection.fetchval("select 1") == 1


@pytest.mark.parametrize(
    "parameters",
    [
        "channel_binding=prefer&gssencmode=prefer&sslsni=1&application_name=x&client_encoding=utf8",
        "pgbouncer=true&schema=public&connection_limit=5&pool_timeout=3&prepared_statements=false",
        "ssl=false&connect_timeout=20&keepalives=1&keepalives_idle=30&keepalives_interval=5&tcp_user_timeout=9000",
        "options=-c%20work_mem%3D5MB&target_session_attrs=primary&sslcert=&gssencmode=",
    ],
)
async def test_parameters_of_providers_and_other_drivers_are_accepted(database: str, parameters: str) -> None:
    async with connect(f"{database}&{parameters}", name="test") as connection:
        assert await connection.fetchval("show application_name") == "test"
        assert await connection.fetchval("show work_mem") == ("5MB" if "work_mem" in parameters else "4MB")


def test_timeouts_and_keepalives_are_honoured() -> None:
    assert parse("postgresql://h/d").connect_timeout is None
    assert parse("postgresql://h/d").keepalives["TCP_KEEPIDLE"] == 10
    target = parse("postgresql://h/d?connect_timeout=7&keepalives_idle=33&tcp_user_timeout=0")
    assert (target.connect_timeout, target.keepalives["TCP_KEEPIDLE"]) == (7, 33)
    assert "TCP_USER_TIMEOUT" not in target.keepalives
    assert parse("postgresql://h/d?keepalives=0").keepalives == {}
    target = parse("postgresql://h/d?connect_timeout=-1&keepalives_idle=-1")
    assert target.connect_timeout is None
    assert "TCP_KEEPIDLE" not in target.keepalives


@pytest.mark.parametrize(
    ("parameter", "remedy"),
    [
        ("channel_binding=require", "sslmode=verify-full"),
        ("gssencmode=require", "sslmode=require"),
        ("require_auth=scram-sha-256", "sslmode=verify-full"),
        ("requirepeer=postgres", "Remove it"),
        ("sslaccept=strict", "sslmode=verify-full"),
        ("replication=database", "Remove it"),
        ("target_session_attrs=banana", "read-write, read-only, prefer-standby"),
        ("sslmode=banana", "verify-ca, verify-full"),
        ("hostaddr=127.0.0.1", "Use host"),
        ("sslrootcert=/nowhere/root.crt&sslmode=verify-full", "Correct sslrootcert"),
        ("sslrootcert=system&sslmode=require", "Change one"),
        ("connect_timeout=soon", "Correct or remove"),
        ("keepalives_idle=40000", "Correct or remove"),
        ("service=nowhere", "PGSERVICEFILE"),
    ],
)
async def test_what_the_driver_can_not_do_is_refused_with_a_remedy(database: str, parameter: str, remedy: str) -> None:
    """In particular, no demand for security is ignored."""
    with pytest.raises(DatabaseUnreachable) as caught:
        await open_connection(f"{database}&{parameter}", name="test")
    assert remedy in caught.value.remedy
    assert parameter.partition("=")[0] in caught.value.message
    assert "running" not in caught.value.remedy


@pytest.mark.parametrize("variable", ["", "verify-ca"])
def test_a_server_can_not_be_verified_without_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The remedy of channel_binding=require leads here."""
    monkeypatch.setenv("HOME", str(tmp_path))
    url = "postgresql://h/d" if variable else "postgresql://h/d?sslmode=verify-full"
    with pytest.raises(DatabaseUnreachable, match="verify-.* needs .*root.crt") as caught:
        parse(url, {"PGSSLMODE": variable})
    assert "sslrootcert=system" in caught.value.remedy
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert parse(url, {"PGSSLMODE": variable}).dsn


async def test_a_server_without_tls_is_reported_with_a_remedy() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"N")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DatabaseUnreachable, match="does not offer TLS") as caught:
            await open_connection(f"postgresql://u@127.0.0.1:{port}/d?sslmode=require", name="test")
    assert "ssl = on" in caught.value.remedy


async def test_an_unknown_parameter_is_named(database: str) -> None:
    with pytest.raises(DatabaseUnreachable, match="nonesuch.*\n.*Remove this parameter"):
        await open_connection(f"{database}&nonesuch=1", name="test")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@part@db.example/app",
        "postgresql://u:secret/part@db.example/app",
        "postgresql://u:1234/part@db.example/app",
        "postgresql://u:secret#part@db.example/app",
        "postgresql://u:1234?part@db.example/app",
        "postgresql://u:secret[part@db.example/app",
        "postgresql://u:secret:part@db@db.example/app",
        "postgresql+asyncpg://u:secretpart",
    ],
)
async def test_no_part_of_a_password_that_is_not_encoded_is_shown(url: str) -> None:
    with pytest.raises(DatabaseUnreachable) as caught:
        await open_connection(url, name="test", timeout_seconds=1)
    for text in (str(caught.value), repr(caught.value), address(url)):
        assert not any(part in text for part in ("secret", "part", "1234"))
    assert "%40" in caught.value.remedy


async def test_an_encoded_password_and_one_among_the_parameters_are_not_shown() -> None:
    assert without_password("postgresql://u:se%40cret@h/app?password=hush") == "postgresql://u@h/app"
    assert address("postgresql://u:se%40cret@h/app?password=hush") == "PostgreSQL at h/app"
    assert "hush" not in repr(parse("postgresql://u:hush@h/app"))
    assert with_database("postgresql://u:se%40c%2Fret@h,g:1/app", "b") == "postgresql://u:se%40c%2Fret@h,g:1/b"


async def test_a_service_fills_in_what_the_url_leaves_open(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = urlsplit(parse(database).dsn)
    values = dict(pair.split("=", 1) for pair in target.query.split("&") if pair)
    values |= {"dbname": target.path[1:], "user": target.username or "postgres"}
    values |= {"password": target.password or "", "host": values.get("host") or str(target.hostname)}
    file = tmp_path / "services.conf"
    file.write_text("[main]\n" + "".join(f"{name}={value}\n" for name, value in values.items()))
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    async with connect("postgresql://?service=main", name="test") as connection:
        assert await connection.fetchval("select current_database()") == target.path[1:]
    monkeypatch.setenv("PGSERVICE", "main")
    async with connect("postgresql:///postgres", name="test") as connection:
        assert await connection.fetchval("select current_database()") == "postgres"
    file.write_text(file.read_text() + "channel_binding=require\n")
    with pytest.raises(DatabaseUnreachable, match="channel_binding"):
        await open_connection("postgresql://", name="test")


async def test_variables_about_other_servers_do_not_reach_the_embedded_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    for name, value in {
        "PGHOST": "db.example",
        "PGPORT": "1",
        "PGUSER": "stranger",
        "PGDATABASE": "elsewhere",
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/nowhere/root.crt",
        "PGSSLNEGOTIATION": "direct",
        "PGTARGETSESSIONATTRS": "standby",
        "PGSERVICE": "nowhere",
        "PGOPTIONS": "-c nonesuch=1",
        "PGDATA": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
        async with connect(server.url(), name="test") as connection:
            assert await connection.fetchval("select current_user") == "postgres"
