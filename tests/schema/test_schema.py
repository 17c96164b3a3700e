"""The migrations build exactly the schema that sql/schema describes, and `make migration` freezes it."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest

from reactor.database.assets import folder
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate, migrate_down, preparation_script
from reactor.embedded import installed_versions
from reactor.embedded.binaries import find_programs
from tests.support.catalog import catalog, difference
from tests.support.databases import empty_database

SCHEMA = folder("sql") / "schema"
VERSIONS = folder("migrations") / "versions"


def whole_schema() -> str:
    """What `psql -f sql/schema/schema.sql` runs."""

    def read(path: Path) -> str:
        return re.sub(r"^\\ir (\S+)$", lambda line: read(path.parent / line[1]), path.read_text(), flags=re.MULTILINE)

    return read(SCHEMA / "schema.sql")


@pytest.fixture
async def built(server: str) -> AsyncIterator[Connection]:
    """A database that was built from sql/schema, without migrations."""
    async with empty_database(server) as url, connect(url, name="test") as connection:
        await connection.execute(preparation_script())
        await connection.execute("set role reactor_owner")
        await connection.execute(whole_schema())
        yield connection


async def test_migrations_and_sql_schema_build_the_same_database(server: str, built: Connection) -> None:
    """If this fails: `make migration` (before the first release), or edit the newest revision until both are equal."""
    async with empty_database(server) as url:
        await migrate(url)
        async with connect(url, name="test") as connection:
            await connection.execute("set search_path = pg_catalog")
            await built.execute("set search_path = pg_catalog")
            migrated, direct = await catalog(connection), await catalog(built)
    assert {key: migrated.get(key) for key in difference(migrated, direct)} == {
        key: direct.get(key) for key in difference(migrated, direct)
    }
    kinds = {kind for kind, _ in direct}
    assert {
        "relation r",
        "relation v",
        "relation S",
        "column",
        "constraint",
        "function",
        "trigger",
        "type c",
        "policy",
    } <= kinds


def test_the_schema_can_be_read_by_psql(server: str) -> None:
    psql = find_programs(installed_versions()[-1]) / "psql"
    files = [
        argument for name in ("roles", "prepare") for argument in ("-f", str(folder("migrations") / f"{name}.sql"))
    ]
    prepare = [*files, "-c", "drop schema if exists reactor cascade"]
    owner = ["-c", "create schema reactor authorization reactor_owner", "-c", "set role reactor_owner"]
    build = ["-c", "begin", *prepare, *owner, "-f", str(SCHEMA / "schema.sql"), "-c", "rollback"]
    done = subprocess.run([psql, server, "-v", "ON_ERROR_STOP=1", *build], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


CHANGES = {
    "comment on table reactor.jobs is 'x'": "relation r",
    "comment on column reactor.jobs.id is 'x'": "column",
    "comment on function reactor.epoch is 'x'": "function",
    "comment on type reactor.claimed is 'x'": "type c",
    "comment on constraint needs_is_known on reactor.dependencies is 'x'": "constraint",
    "grant update on reactor.jobs to reactor_viewer": "relation r",
    "grant update (payload) on reactor.jobs to reactor_viewer": "column",
    "grant execute on function reactor.claim to reactor_viewer": "function",
    "grant usage on sequence reactor.jobs_notified_at to reactor_viewer": "relation S",
    "grant create on schema reactor to reactor_worker": "schema",
    "alter default privileges in schema reactor grant select on tables to reactor_viewer": "default privileges",
    "drop index reactor.jobs_scheduled;"
    "create index jobs_scheduled on reactor.jobs (id) where phase = 'scheduled'": "relation i",
    "alter table reactor.jobs alter queue set default 'other'": "column",
    "alter table reactor.jobs alter error set not null": "column",
    "alter table reactor.jobs set (fillfactor = 80)": "relation r",
    "alter table reactor.queues drop constraint max_running_is_not_negative": "constraint",
    "alter table reactor.dependencies alter constraint dependencies_job_id_fkey initially immediate": "constraint",
    "alter policy view_jobs on reactor.jobs using (false)": "policy",
    "alter table reactor.jobs disable row level security": "relation r",
    "alter sequence reactor.feed_notified_at cache 5": "sequence",
    "alter type reactor.claimed add attribute extra int": "column",
    "alter function reactor.claim security definer": "function",
    "alter function reactor.epoch volatile": "function",
    "alter function reactor.settle reset enable_seqscan": "function",
    "create or replace function reactor.scope_lock_class() returns int language sql immutable return 1": "function",
    "do $$ begin execute 'create or replace view reactor.pipelines as '"
    " || replace(pg_get_viewdef('reactor.pipelines'), 'avg', 'max'); end $$": "relation v",
    "alter view reactor.workload set (security_barrier = on)": "relation v",
    "alter table reactor.steps disable trigger after_write": "trigger",
    "drop trigger after_write on reactor.queues": "trigger",
    "alter table reactor.audit enable row level security": "relation r",
    "update reactor.settings set draining = true": "row of settings",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_the_comparison_detects_any_difference(connection: Connection, change: str) -> None:
    """Otherwise the test above would prove nothing."""
    before = await catalog(connection)
    await connection.execute("set role reactor_owner")
    await connection.execute(change)
    await connection.execute("reset role")
    assert CHANGES[change] in {kind for kind, _ in difference(before, await catalog(connection))}


async def test_a_downgrade_leaves_only_alembics_table(database: str, connection: Connection) -> None:
    await migrate_down(database, "base")
    left = await connection.fetch(
        "select oid::regclass::text as name from pg_class where relnamespace = 'reactor'::regnamespace"
        " union all select oid::regprocedure::text from pg_proc where pronamespace = 'reactor'::regnamespace"
        " union all select oid::regtype::text from pg_type where typnamespace = 'reactor'::regnamespace"
    )
    assert {row["name"] for row in left if "alembic_version" not in row["name"]} == set()


# `make migration`


def load_freeze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("freeze", folder("migrations") / "freeze.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


freeze = load_freeze()


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """The schema, and revision 0001 made from it, to be changed."""
    schema, versions = tmp_path / "schema", tmp_path / "versions"
    shutil.copytree(SCHEMA, schema)
    shutil.copytree(VERSIONS / "0001", versions / "0001")
    freeze.refresh(schema, versions)
    return schema, versions


def test_every_file_of_the_schema_is_applied() -> None:
    files = {path.relative_to(SCHEMA).as_posix() for path in SCHEMA.rglob("*.sql")}
    assert sorted(freeze.order(SCHEMA)) == sorted(files - {"schema.sql"})


def test_the_newest_revision_is_made_from_this_schema() -> None:
    """If this fails: sql/schema was changed after the last `make migration`."""
    assert freeze.frozen_checksums(freeze.newest(VERSIONS)) == freeze.checksums(SCHEMA)


def test_the_unreleased_revision_is_a_copy_of_the_schema() -> None:
    if freeze.newest(VERSIONS).name != "0001":
        pytest.skip("a later revision exists, so 0001 is frozen: the comparison of both databases covers the rest")
    for name in ["schema.sql", *freeze.order(SCHEMA)]:
        assert (VERSIONS / "0001" / name).read_bytes() == (SCHEMA / name).read_bytes(), name


def test_the_unreleased_revision_is_refreshed(copies: tuple[Path, Path]) -> None:
    schema, versions = copies
    assert freeze.refresh(schema, versions) == []
    (schema / "functions" / "claim.sql").write_text("-- Another.\n")
    (schema / "functions" / "prune.sql").unlink()
    listing = schema / "schema.sql"
    listing.write_text(listing.read_text().replace("\\ir functions/prune.sql\n", ""))
    assert freeze.refresh(schema, versions) == ["functions/claim.sql", "functions/prune.sql", "schema.sql"]
    assert (versions / "0001" / "functions" / "claim.sql").read_text() == "-- Another.\n"
    assert not (versions / "0001" / "functions" / "prune.sql").exists()
    assert (versions / "0001" / "down.sql").exists()


def test_a_new_revision_has_what_changed_since_the_last_one(copies: tuple[Path, Path]) -> None:
    schema, versions = copies
    with pytest.raises(SystemExit, match="has not changed since revision 0001"):
        freeze.create(schema, versions, "nothing")
    for name in ("functions/claim.sql", "tables/jobs.sql"):
        (schema / name).write_text((schema / name).read_text() + "-- changed\n")
    script = freeze.create(schema, versions, "add_lane")
    assert script.name == "0002_add_lane.py"
    assert 'down_revision = "0001"' in script.read_text()
    revision = versions / "0002"
    files = {path.relative_to(revision).as_posix() for path in revision.rglob("*") if path.is_file()}
    copied = {"functions/claim.sql", "tables/jobs.sql", "privileges.sql"}
    assert files == copied | {"up.sql", "down.sql", "schema.sha256"}
    up = (revision / "up.sql").read_text()
    assert "EDIT IT before you commit" in up
    # A table can't be created twice: its copy is for the author to edit, and is not run.
    assert re.findall(r"^\\ir (\S+)$", up, re.MULTILINE) == ["functions/claim.sql", "privileges.sql"]
    assert "-- \\ir tables/jobs.sql" in up
    with pytest.raises(SystemExit, match="has not changed since revision 0002"):
        freeze.create(schema, versions, "nothing")
    with pytest.raises(SystemExit, match="0001 is frozen"):
        freeze.refresh(schema, versions)


async def test_a_new_revision_of_functions_runs_unedited(database: str, connection: Connection) -> None:
    """The generated up.sql includes the functions that changed."""
    await connection.execute("set role reactor_owner")
    for name in freeze.order(SCHEMA):
        if name.startswith(freeze.RUNNABLE):
            await connection.execute((SCHEMA / name).read_text())


async def test_rows_can_be_deleted_where_logical_replication_publishes_all_tables(connection: Connection) -> None:
    """PostgreSQL refuses updates and deletes of published tables that have no replica identity."""
    await connection.execute("create publication everything for all tables")
    tables = await connection.fetch(
        "select c.oid::regclass::text as name from pg_class c where c.relnamespace = 'reactor'::regnamespace "
        "and c.relkind = 'r' and c.relpersistence = 'p'"
    )
    assert len(tables) > 10
    for table in tables:
        await connection.execute(f"delete from {table['name']} where false")
