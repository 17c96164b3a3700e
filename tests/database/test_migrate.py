"""Migrations: run by any number of pods, all or nothing, with a script for administrators."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from alembic.script import ScriptDirectory

from reactor.database import assets
from reactor.database import migrate as migrations
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate, migrate_down, migration_script, preparation_script
from reactor.database.revision import check_revision, current_revision, known_revisions, newest_revision
from reactor.doctor import diagnose
from reactor.embedded import installed_versions, start_embedded
from reactor.embedded.locate import Location
from reactor.errors import (
    DatabaseReadOnly,
    EncodingUnsupported,
    MigrationFailed,
    PrivilegeMissing,
    ReactorError,
    SchemaBehind,
    SchemaForeign,
    SchemaUnknown,
)
from tests.support.databases import empty_database
from tests.support.until import until


@pytest.fixture
async def empty(server: str) -> AsyncIterator[str]:
    """The address of a database without reactor's schema."""
    async with empty_database(server) as url:
        yield url


AT_ONCE = """
import asyncio, os, sys
from reactor.log import configure_logging
from reactor.database.migrate import migrate
configure_logging()
pods = []
for url in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        before, after = asyncio.run(migrate(url))
        os.write(1, f"{before} {after}\\n".encode())  # at once: print may write in pieces
        sys.exit()
    pods.append(pid)
sys.exit(max(os.waitpid(pid, 0)[1] for pid in pods) > 0)
"""


async def migrate_at_once(*urls: str) -> list[str]:
    """Each in its own process, as pods do; forked, since processes that import everything would slow other
    tests down. Returns the revisions before and after, one line for each process."""
    command = [sys.executable, "-c", AT_ONCE, *urls]
    pods = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, complained = await pods.communicate()
    assert pods.returncode == 0, complained.decode()
    return printed.decode().splitlines()


async def test_five_concurrent_migrations_create_one_schema(empty: str) -> None:
    """P10"""
    newest = newest_revision()
    assert Counter(await migrate_at_once(*[empty] * 5)) == {f"None {newest}": 1, f"{newest} {newest}": 4}
    async with connect(empty, name="test") as connection:
        assert await check_revision(connection) == newest


async def test_concurrent_migrations_of_two_databases_share_the_roles(folder: Path) -> None:
    """Roles belong to the server, and the migration lock to a database."""
    with start_embedded(folder, version=installed_versions()[-1], options={"fsync": "off"}) as server:
        async with connect(server.url(), name="test") as admin:
            for number in range(3):
                await admin.execute(f"create database d{number}")
        said = await migrate_at_once(*(server.url(f"d{number}") for number in range(3)))
        assert said == [f"None {newest_revision()}"] * 3


async def test_a_migration_that_fails_changes_nothing(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "create table reactor.half (id int); select 1/0;"
    monkeypatch.setattr(Path, "read_text", _reading(broken))
    with pytest.raises(ReactorError, match=r"division by zero\.\nNothing was changed"):
        await migrate(empty)
    monkeypatch.undo()
    async with connect(empty, name="test") as connection:
        assert await connection.fetchval("select to_regclass('reactor.half')") is None
        assert await current_revision(connection) is None
    assert (await migrate(empty))[1] == newest_revision()


def _reading(script: str) -> object:
    real = Path.read_text

    def read_text(path: Path, *arguments: str | None, **options: str | None) -> str:
        return script if path.name == "privileges.sql" else real(path, *arguments, **options)

    return read_text


async def test_everything_belongs_to_the_owner_role(connection: Connection) -> None:
    owners = await connection.fetch(
        "select distinct pg_get_userbyid(relowner) as owner from pg_class where relnamespace = 'reactor'::regnamespace"
    )
    assert [row["owner"] for row in owners] == ["reactor_owner"]


async def test_a_downgrade_can_be_followed_by_an_upgrade(database: str, connection: Connection) -> None:
    assert await migrate_down(database, "base") == (newest_revision(), None)
    with pytest.raises(SchemaBehind, match="reactor migrate"):
        await check_revision(connection)
    assert await migrate(database) == (None, newest_revision())


async def test_an_unknown_target_is_refused(database: str) -> None:
    with pytest.raises(ReactorError, match="nonsense"):
        await migrate_down(database, "nonsense")


async def test_a_schema_of_a_newer_version_is_not_changed(database: str, connection: Connection) -> None:
    await connection.execute("update reactor.alembic_version set version_num = '9999'")
    with pytest.raises(SchemaUnknown, match="9999"):
        await migrate(database)
    with pytest.raises(SchemaUnknown, match="9999"):
        await check_revision(connection)


async def test_the_printed_sql_creates_the_same_schema(empty: str) -> None:
    async with connect(empty, name="test") as connection:
        await connection.execute(migration_script())
        await connection.execute("reset role")
        assert await check_revision(connection) == newest_revision()


async def test_a_user_without_privileges_gets_the_sql_for_an_administrator(folder: Path) -> None:
    """On its own server, since the roles must not exist yet."""
    for version in [v for v in installed_versions() if v in (15, 16, 18)]:
        with start_embedded(folder, version=version, options={"fsync": "off"}) as server:
            async with connect(server.url(), name="test") as admin:
                await admin.execute('create role "App User" login')
                url = server.url().replace("postgres@", "App%20User@", 1)
                with pytest.raises(PrivilegeMissing) as refused:
                    await migrate(url)
                assert "App User" in refused.value.user
                await admin.execute(refused.value.script)
                assert (await migrate(url))[1] == newest_revision()


async def test_an_administrator_of_a_managed_server_can_run_that_sql(folder: Path) -> None:
    """It may create roles, and owns no database: the application owns its own."""
    for version in [v for v in installed_versions() if v in (15, 16, 18)]:
        with start_embedded(folder, version=version, options={"fsync": "off"}) as server:
            async with connect(server.url(), name="test") as admin:
                await admin.execute("create role app login; create role managed login createrole")
                await admin.execute("create database app owner app")
            url = server.url("app").replace("postgres@", "app@", 1)
            with pytest.raises(PrivilegeMissing) as refused:
                await migrate(url)
            async with connect(url.replace("app@", "managed@", 1), name="test") as managed:
                await managed.execute(refused.value.script)
                assert not await managed.fetchval("select exists (select from pg_namespace where nspname = 'reactor')")
            assert (await migrate(url))[1] == newest_revision()


async def test_a_user_with_createrole_and_create_can_migrate(folder: Path) -> None:
    for version in [v for v in installed_versions() if v in (15, 16, 18)]:
        with start_embedded(folder, version=version, options={"fsync": "off"}) as server:
            async with connect(server.url(), name="test") as admin:
                await admin.execute("create role maker login createrole")
                await admin.execute("grant create on database postgres to maker")
            assert (await migrate(server.url().replace("postgres@", "maker@", 1)))[1] == newest_revision()


async def test_a_migration_waits_for_the_one_before_it(empty: str) -> None:
    async with connect(empty, name="test") as other:
        await other.execute("select pg_advisory_lock($1)", migrations.LOCK_KEY)
        waiting = asyncio.create_task(migrate(empty))

        async def waits() -> bool:
            found: bool = await other.fetchval(
                "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
            )
            return found

        await until(waits)
        assert not waiting.done()
        await other.execute("select pg_advisory_unlock($1)", migrations.LOCK_KEY)
        assert (await waiting)[1] == newest_revision()


async def test_defaults_of_the_server_do_not_disturb_a_migration(empty: str) -> None:
    """A second migration waits for the first one, however short the waits of this database's users are."""
    async with connect(empty, name="test") as other:
        for setting in ("lock_timeout = '50ms'", "standard_conforming_strings = off"):
            await other.execute(f"alter database {urlsplit(empty).path[1:]} set {setting}")
        await other.execute("select pg_advisory_lock($1)", migrations.LOCK_KEY)
        waiting = asyncio.create_task(migrate(empty))
        waits = "select exists (select from pg_locks where locktype = 'advisory' and not granted and pid = any "
        waits += "(array(select pid from pg_stat_activity where clock_timestamp() - query_start > interval '200 ms')))"
        await until(lambda: waiting.done() or other.fetchval(waits))
        await other.execute("select pg_advisory_unlock($1)", migrations.LOCK_KEY)
        assert (await waiting)[1] == newest_revision()
    async with connect(empty, name="test") as connection:
        assert await connection.fetchval("show standard_conforming_strings") == "off"
        await connection.execute("insert into reactor.jobs (job_type) values ('sums')")
        for job_type in (" a", "a "):
            with pytest.raises(asyncpg.PostgresError, match="job_type"):
                await connection.execute("insert into reactor.jobs (job_type) values ($1)", job_type)


async def test_a_migration_may_take_longer_than_transactions_of_this_database(server: str) -> None:
    """PostgreSQL 17 and newer have a limit for these, and end the session that exceeds it."""
    async with empty_database(server) as empty, connect(empty, name="test") as other:
        if other.get_server_version().major < 17:
            pytest.skip("this server has no transaction_timeout")
        await other.execute(
            "create sequence commands; "
            "create function delay() returns event_trigger security definer language plpgsql as $$ begin "
            "if nextval('commands') = 1 then perform pg_sleep(1.5); end if; end $$; "
            "create event trigger delay on ddl_command_end when tag in ('CREATE FUNCTION') execute function delay()"
        )
        await other.execute(f"alter database {urlsplit(empty).path[1:]} set transaction_timeout = '1s'")
        assert (await migrate(empty))[1] == newest_revision()


async def test_what_forbids_a_migration_is_reported(empty: str) -> None:
    name = urlsplit(empty).path[1:]
    async with connect(empty, name="test") as other:
        await other.execute(f"alter database {name} set default_transaction_read_only = on")
        with pytest.raises(DatabaseReadOnly, match="read-only"):
            await migrate(empty)
        await other.execute(f"alter database {name} reset default_transaction_read_only")
        await other.execute(
            "create function forbid() returns event_trigger language plpgsql as $$ begin raise 'no DDL today'; end $$;"
            "create event trigger no_ddl on ddl_command_start execute function forbid()"
        )
        with pytest.raises(MigrationFailed, match="no DDL today.*\nNothing was changed.*no_ddl"):
            await migrate(empty)
        assert await other.fetchval("select to_regnamespace('reactor')") is None
        await other.execute("drop event trigger no_ddl; create schema reactor; create table reactor.theirs ()")
        with pytest.raises(SchemaForeign, match="database of its own"):
            await migrate(empty)


async def test_a_database_of_another_encoding_is_refused(server: str) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        async with empty_database(server, f"encoding '{encoding}' locale 'C' template template0") as url:
            with pytest.raises(EncodingUnsupported, match=f"{encoding}; reactor needs UTF8"):
                await migrate(url)
            found = [finding async for finding in diagnose(Location(url, url), {})]
            assert [finding for finding in found if finding.check == "server" and encoding in finding.message]


def test_the_preparation_script_works_in_psql(server: str) -> None:
    """Administrators run it there, without asyncpg and its parameters."""
    from reactor.embedded.binaries import find_programs

    psql = find_programs(installed_versions()[-1]) / "psql"
    done = subprocess.run(
        [psql, server, "-v", "ON_ERROR_STOP=1", "-c", "begin", "-f", "-", "-c", "rollback"],
        input=preparation_script(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_alembic_knows_the_same_revisions() -> None:
    """The engine reads them from the file names, since importing Alembic takes half a second."""
    scripts = ScriptDirectory(str(assets.folder("migrations")))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == known_revisions()
    assert scripts.get_current_head() == newest_revision()
