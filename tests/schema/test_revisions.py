"""Revisions after the first: `make migration` creates them, and they only add to what exists."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reactor import Registry, submit
from reactor.database import migrate as migrations
from reactor.database import revision
from reactor.database.assets import folder
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate, migrate_down
from reactor.database.revision import check_revision, newest_revision
from reactor.job import JobState
from reactor.testing import run_until_idle
from tests.support.databases import empty_database
from tests.support.jobs import insert

Use = Callable[[Path], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Lets `migrate` read the migrations of another checkout."""

    def use(checkout: Path) -> None:
        for module in (migrations, revision):
            monkeypatch.setattr(module, "folder", lambda name: checkout / name)

    return use


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what `make migration` reads and writes."""
    shutil.copytree(folder("migrations"), tmp_path / "migrations", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(folder("sql") / "schema", tmp_path / "sql" / "schema")
    shutil.copyfile(folder("sql").parent / "Makefile", tmp_path / "Makefile")
    return tmp_path


def make_migration(checkout: Path, table: str, changed: str, up: str, down: str) -> None:
    """What an author does: change a table in sql/schema, `make migration`, and edit what that has created."""
    definition = checkout / "sql" / "schema" / "tables" / f"{table}.sql"
    definition.write_text(definition.read_text() + changed)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-o", "venv", f"IN={sys.executable}", "migration", "NAME=add_note"]
    made = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    number = f"{int(newest_revision()) + 1:04}"
    assert f"Edit migrations/versions/{number}/up.sql and down.sql next." in made.stdout
    created = checkout / "migrations" / "versions" / number
    include = f"\\ir tables/{table}.sql\n"
    script = (created / "up.sql").read_text()
    assert f"-- {include}" in script
    (created / "up.sql").write_text(script.replace(f"-- {include}", include))
    (created / "tables" / f"{table}.sql").write_text(f"-- What is new.\n{up};\n")
    (created / "down.sql").write_text(f"-- Undoes it.\n{down};\n")


async def rows(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """The content of all tables, without the column `note`."""
    tables = await connection.fetch(
        "select relname from pg_class where relnamespace = 'reactor'::regnamespace and relkind = 'r' "
        "and relname <> 'alembic_version'"
    )
    select = "select to_jsonb(t) - 'note' from reactor.{} t order by 1"
    return {table: [row[0] for row in await connection.fetch(select.format(table))] for (table,) in tables}


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.register("work")
    async def work() -> None: ...

    @registry.register("fails", max_attempts=2, backoff=0)
    async def fails() -> None:
        raise ValueError

    return registry


async def test_an_upgrade_keeps_all_rows_and_what_was_written_before_it_goes_on(
    database: str, connection: Connection, registry: Registry, checkout: Path, use: Use
) -> None:
    """J12: `make migration` creates a revision beside the last one, which adds a column with a default."""
    old_statement = await connection.prepare("insert into reactor.jobs (job_type) values ('work') returning id")
    await old_statement.fetchval()
    await insert(connection, "fails")
    unhandled = await insert(connection, "unhandled")
    await insert(connection, "unhandled", after=[unhandled], payload='{"large": [1, 2]}', tags=["a"])
    await connection.execute("insert into reactor.queues values ('closed', true, 3)")
    await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", unhandled)
    ended = await run_until_idle(database, registry)
    assert ended == {JobState.COMPLETED: 1, JobState.PENDING: 1, JobState.FAILED: 1}
    before = await rows(connection)
    assert [len(before[table]) for table in ("jobs", "attempts", "queues")] == [4, 1, 1]

    last = newest_revision()
    add = "alter table reactor.jobs add column note text not null default 'none'"
    make_migration(checkout, "jobs", f"{add};\n", add, "alter table reactor.jobs drop column note")
    use(checkout)
    assert newest_revision() > last
    assert await migrate(database) == (last, newest_revision())
    assert await check_revision(connection) == newest_revision()
    assert await rows(connection) == before

    inserted = [await old_statement.fetchval(), (await submit(connection, "work")).id]
    await connection.copy_records_to_table("new_jobs", schema_name="reactor", columns=["job_type"], records=[("work",)])
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 3}
    notes = await connection.fetch("select note from reactor.jobs where id = any ($1)", inserted)
    assert [note for (note,) in notes] == ["none", "none"]

    afterwards = await rows(connection)
    assert await migrate_down(database, last) == (newest_revision(), last)
    assert await rows(connection) == afterwards


# What a released revision may do


class Column(NamedTuple):
    table: int
    """The oid, since another table may get the name."""
    number: int
    type: str
    must_be_given: bool
    """An insert that leaves it out is refused."""


Columns = dict[tuple[str, str], Column]


async def columns(connection: Connection) -> Columns:
    found = await connection.fetch(
        "select relname, attname, attrelid::bigint, attnum, format_type(atttypid, atttypmod), "
        "attnotnull and not atthasdef and attidentity = '' and typdefault is null "
        "from pg_class c join pg_attribute a on attrelid = c.oid join pg_type t on t.oid = atttypid "
        "where relnamespace = 'reactor'::regnamespace and relkind in ('r', 'p') and attnum > 0 and not attisdropped"
    )
    return {(table, name): Column(*rest) for table, name, *rest in found}


def offences(before: Columns, after: Columns) -> list[str]:
    """How the step between two revisions breaks the rule that columns are only added, nullable or with a default.

    Compares the results and not the scripts, since SQL can say the same in many ways.
    """
    found = []
    tables = {table: column.table for (table, _), column in before.items()}
    for (table, name), old in before.items():
        new = after.get((table, name))
        if new is None or (new.table, new.number) != (old.table, old.number):
            found.append(f"{table}.{name} was removed")
        elif new.type != old.type:
            found.append(f"{table}.{name} was {old.type} and is {new.type}")
        elif new.must_be_given and not old.must_be_given:
            found.append(f"{table}.{name} could be left out")
    for (table, name), new in after.items():
        if (table, name) not in before and table in tables and new.must_be_given:
            found.append(f"{table}.{name} is neither nullable nor has a default")
    return sorted(found)


async def offences_of_revisions(server: str, checkout: Path, scratch: Path, use: Use) -> dict[str, list[str]]:
    """Of each revision after the first, applied one after the other."""
    found: dict[str, list[str]] = {}
    before: Columns = {}
    shutil.copytree(checkout / "migrations", scratch / "migrations", ignore=shutil.ignore_patterns("[0-9]*_*.py"))
    use(scratch)
    async with empty_database(server) as url:
        for script in sorted((checkout / "migrations" / "versions").glob("[0-9]*_*.py")):
            shutil.copy(script, scratch / "migrations" / "versions")
            await migrate(url)
            async with connect(url, name="test") as connection:
                after = await columns(connection)
            if before:
                found[newest_revision()] = offences(before, after)
            before = after
    return found


async def test_every_revision_after_the_first_only_adds(server: str, tmp_path: Path, use: Use) -> None:
    """J12: if this fails, find another way: statements of earlier versions still run."""
    found = await offences_of_revisions(server, folder("migrations").parent, tmp_path, use)
    assert {number: broken for number, broken in found.items() if broken} == {}


async def test_a_revision_that_removes_is_found(server: str, checkout: Path, use: Use, tmp_path: Path) -> None:
    """J12"""
    remove, add = "alter table reactor.audit drop came_from", "alter table reactor.audit add came_from text"
    make_migration(checkout, "audit", f"{remove};\n", remove, add)
    last = newest_revision()
    found = await offences_of_revisions(server, checkout, tmp_path / "scratch", use)
    assert found[newest_revision()] == ["audit.came_from was removed"]
    assert newest_revision() > last


REFUSED = {
    "alter table reactor.audit drop column target": "target was removed",
    "alter table reactor.audit drop target": "target was removed",
    "do $$ begin execute 'alter table reactor.audit ' || 'drop column target'; end $$": "target was removed",
    "alter table reactor.audit drop column target, add column target text": "target was removed",
    "alter table reactor.audit rename target to aim": "target was removed",
    "alter table reactor.audit rename to actions": "target was removed",
    "drop table reactor.audit": "target was removed",
    "create table reactor.other (like reactor.audit including all); drop table reactor.audit;"
    "alter table reactor.other rename to audit": "target was removed",
    "alter table reactor.audit alter column target type varchar(100)": "target was text and is character varying(100)",
    "alter table reactor.audit alter target set data type jsonb using null": "target was text and is jsonb",
    "alter table reactor.audit add column note text not null": "note is neither nullable nor has a default",
    "alter table reactor.audit add note text, alter note set not null": "note is neither nullable nor has a default",
    "alter table reactor.audit alter target set not null": "target could be left out",
    "alter table reactor.audit alter who drop default": "who could be left out",
}
ALLOWED = [
    "alter table reactor.audit add column note text",
    "alter table reactor.audit add column note text not null default ''",
    "alter table reactor.audit add column note bigint generated by default as identity",
    "alter table reactor.audit add column note text generated always as (who || what) stored",
    "alter table reactor.audit alter target set default '', alter target set not null",
    "create table reactor.notes (id bigint primary key, note text not null)",
    "create index on reactor.audit (target)",
]


@pytest.mark.parametrize("step", [*REFUSED, *ALLOWED])
async def test_a_revision_may_only_add_columns_that_can_be_left_out(connection: Connection, step: str) -> None:
    """J12"""
    before = await columns(connection)
    await connection.execute("set role reactor_owner")
    await connection.execute(step)
    found = offences(before, await columns(connection))
    if step in REFUSED:
        assert f"audit.{REFUSED[step]}" in found
    else:
        assert found == []
