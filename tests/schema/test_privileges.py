"""Roles: producers can do what the contract allows and nothing else; no function can be abused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate, migrate_down
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, register_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending


@asynccontextmanager
async def acting_as(connection: Connection, role: str) -> AsyncIterator[str]:
    """A session of a new login role that is a member of the role."""
    name = f"reactor_test_{uuid4().hex[:8]}"
    await connection.execute(f"create role {name} in role {role}")
    await connection.execute(f"set session authorization {name}")
    try:
        yield name
    finally:
        await connection.execute("reset session authorization")
        await connection.execute(f"drop owned by {name}; drop role {name}")


ALLOWED = [
    "insert into reactor.jobs (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts,"
    " timeout_seconds, tags, scope, exclusive, idempotency_key) values ('a', '{}', gen_random_uuid(), 'q', 1, now(), 1,"
    " 1, '{t}', 's', true, 'k') returning id, pipeline_id",
    "select id, pipeline_id, job_type, scope, idempotency_key, state from reactor.jobs",
    "select * from reactor.submit('a', '{\"x\": 1}', idempotency_key => 'k2', scope => 's2', exclusive => true)",
    'select * from reactor.submit_many(\'[{"job_type": "a"}]\')',
    "with two as (insert into reactor.jobs (job_type) values ('a'), ('b') returning id) select from two",
    "select version_num from reactor.alembic_version",
]

DENIED = [
    "insert into reactor.jobs (job_type, state) values ('a', 'completed')",
    "insert into reactor.jobs (job_type, attempts) values ('a', 0)",
    "insert into reactor.jobs (job_type, parent_id) values ('a', 1)",
    "insert into reactor.jobs (job_type, changed) values ('a', '1')",
    "insert into reactor.jobs (job_type, created_at) values ('a', now())",
    "insert into reactor.jobs (job_type, is_current) values ('a', true)",
    "insert into reactor.jobs (job_type) values ('a') returning payload",
    "select payload from reactor.jobs",
    "select result from reactor.jobs",
    "select error from reactor.jobs",
    "select attempt_id from reactor.jobs",
    "select * from reactor.jobs",
    "update reactor.jobs set state = 'cancelled'",
    "update reactor.jobs set priority = 0",
    "delete from reactor.jobs",
    "truncate reactor.jobs cascade",
    "select id from reactor.jobs for share",
    "lock table reactor.jobs in share mode",
    "select * from reactor.dependencies",
    "update reactor.dependencies set resolved = true",
    "delete from reactor.dependencies",
    "insert into reactor.dependencies (job_id, depends_on, resolved) values (1, 2, true)",
    *(
        f"select * from reactor.{table}"
        for table in ("attempts", "steps", "workers", "queues", "schedules", "audit", "settings", "workload")
    ),
    "insert into reactor.audit (what) values ('x')",
    "update reactor.settings set draining = true",
    "select * from reactor.claim(gen_random_uuid(), 1, null, '{a}', '{1}')",
    "select * from reactor.claim(gen_random_uuid(), 1, null, null, null, single => 1)",
    "select reactor.resolve_dependencies('{1}')",
    "select reactor.recompute_dependencies('{1}')",
    "select reactor.free_scopes('{s}')",
    "select reactor.retry('{1}')",
    "select reactor.repair_waiting(1)",
    "select reactor.cancel('{1}', 'x')",
    "select reactor.sweep(1)",
    "select reactor.prune(0, '{pending}', 1, false)",
    "select reactor.notify_jobs()",
    "insert into reactor.jobs (job_type, inserted_by) values ('a', '1')",
    "select setval('reactor.jobs_notified_at', 1)",
    "select last_value from reactor.jobs_notified_at",
    "create table reactor.mine (x int)",
    "create function reactor.mine() returns int language sql return 1",
    "alter table reactor.jobs disable trigger all",
    "create trigger mine after insert on reactor.jobs execute function suppress_redundant_updates_trigger()",
    "set role reactor_owner",
    "set role reactor_worker",
]


@pytest.mark.parametrize("statement", ALLOWED)
async def test_a_producer_may_do_what_the_contract_allows(connection: Connection, statement: str) -> None:
    async with acting_as(connection, "reactor_producer"):
        await connection.execute(statement)


@pytest.mark.parametrize("statement", DENIED)
async def test_a_producer_may_not_do_anything_else(connection: Connection, statement: str) -> None:
    await connection.execute("insert into reactor.jobs (job_type, payload) values ('a', '{\"secret\": 1}')")
    async with acting_as(connection, "reactor_producer"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connection.transaction():
                await connection.execute(statement)


async def test_a_producer_may_insert_a_dag(connection: Connection) -> None:
    async with acting_as(connection, "reactor_producer"):
        async with connection.transaction():
            ids = [
                await connection.fetchval("insert into reactor.jobs (job_type) values ('a') returning id")
                for _ in range(3)
            ]
            await connection.execute(
                "insert into reactor.dependencies (job_id, depends_on, needs) "
                "values ($1, $2, 'finished'), ($3, $1, default)",
                ids[1],
                ids[0],
                ids[2],
            )
        states = await connection.fetch("select state from reactor.jobs order by id")
        assert [r["state"] for r in states] == ["pending", "waiting", "waiting"]


async def test_a_producer_can_not_add_dependencies_to_the_job_of_another(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b')")
    async with acting_as(connection, "reactor_producer"):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await connection.execute("insert into reactor.dependencies (job_id, depends_on) values (1, 2)")


async def test_a_producer_can_not_change_a_job_that_is_newer_than_its_transaction(
    database: str, connection: Connection
) -> None:
    """It releases another producer's parked job by ending its own job of that scope, and then tries to add a
    dependency."""
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 60)
    failed = await connection.fetchval("insert into reactor.jobs (job_type) values ('x') returning id")
    await connection.execute("update reactor.jobs set state = 'failed'")
    async with connect(database, name="attacker") as attacker, acting_as(attacker, "reactor_producer"):
        transaction = attacker.transaction()
        await transaction.start()
        await attacker.execute("select 1")
        await connection.execute("insert into reactor.jobs (job_type, scope) values ('a', 's'), ('a', 's')")
        [holder] = await claim(connection, worker, 10)
        await settle(connection, [Ending(holder.id, holder.attempt_id, Completed())])
        own = await attacker.fetchval("insert into reactor.jobs (job_type, scope) values ('b', 's') returning id")
        await attacker.execute("insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", own, failed)
        await attacker.execute("set constraints all immediate")
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await attacker.execute(
                "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", holder.id + 1, own
            )
        await transaction.rollback()


async def test_a_worker_may_run_jobs_and_not_change_the_schema(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, scope) values ('a', 's'), ('a', 's')")
    async with acting_as(connection, "reactor_worker"):
        worker = Worker("pod", {"a": 3})
        await register_worker(connection, worker, 60)
        for _ in range(2):
            [job] = await claim(connection, worker, 10)
            assert await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        calls: dict[str, list[Any]] = {
            "RETRY": [[1]],
            "CANCEL": [[1], "x"],
            "REPAIR_WAITING": [10],
            "SWEEP": [10],
            "RECOVER": [2],
            "PROMOTE_DUE": [10],
            "UNPARK_SCOPES": [],
            "PRUNE": [0.0, ["completed", "cancelled"], 10, False, 0, True, False],
        }
        for name, arguments in calls.items():
            await connection.fetch(getattr(statements, name), *arguments)
        assert await connection.fetchval("select count(*) from reactor.jobs") == 0
        for statement in (
            "insert into reactor.jobs (job_type, changed) values ('a', '3')",
            "drop table reactor.jobs",
            "alter table reactor.jobs add x int",
            "create table reactor.x ()",
            "update reactor.alembic_version set version_num = 'x'",
            "delete from reactor.audit",
            "set role reactor_owner",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_a_viewer_may_read_everything_and_change_nothing(connection: Connection) -> None:
    async with acting_as(connection, "reactor_viewer"):
        for table in (
            "jobs",
            "dependencies",
            "steps",
            "attempts",
            "workers",
            "queues",
            "schedules",
            "audit",
            "settings",
        ):
            await connection.execute(f"select * from reactor.{table}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"delete from reactor.{table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")


async def test_every_function_with_its_owners_rights_has_a_pinned_search_path(connection: Connection) -> None:
    unpinned = await connection.fetch(
        "select proname from pg_proc where pronamespace = 'reactor'::regnamespace and prosecdef "
        "and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)"
    )
    assert [r["proname"] for r in unpinned] == []
    definers = await connection.fetchval(
        "select count(*) from pg_proc where pronamespace = 'reactor'::regnamespace and prosecdef"
    )
    assert definers >= 5


async def test_no_function_is_executable_by_public(connection: Connection) -> None:
    public = await connection.fetch(
        "select p.proname from pg_proc p "
        "cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a "
        "where p.pronamespace = 'reactor'::regnamespace and a.grantee = 0"
    )
    assert [r["proname"] for r in public] == []


async def test_a_hijacked_search_path_gains_nothing(connection: Connection) -> None:
    """A producer puts its own functions and operators before the system's and inserts a job: none of them is called."""
    await connection.execute("create schema trap; grant all on schema trap to public")
    async with acting_as(connection, "reactor_producer"):
        for name, arguments, answer in (
            ("clock_timestamp", "", "timestamptz"),
            ("pg_notify", "a text, b text", "void"),
            ("setval", "a regclass, b bigint", "bigint"),
            ("hashtext", "a text", "int"),
            ("pg_current_xact_id", "", "xid8"),
            ("gen_random_uuid", "", "uuid"),
            ("format", "a text, variadic b text[]", "text"),
            ("jsonb_typeof", "a jsonb", "text"),
        ):
            await connection.execute(
                f"create function trap.{name}({arguments}) returns {answer} language plpgsql as "
                f"$$ begin raise exception 'hijacked: % as %', '{name}', current_user; end $$"
            )
        await connection.execute("set search_path = trap, pg_catalog, public")
        try:
            async with connection.transaction():
                one = await connection.fetchval(
                    "insert into reactor.jobs (job_type, idempotency_key, run_after, scope) "
                    "values ('a', 'k', '2020-01-01', 's') returning id"
                )
                two = await connection.fetchval("insert into reactor.jobs (job_type) values ('b') returning id")
                await connection.execute(
                    "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", one, two
                )
            await connection.execute("select reactor.submit('a', '{}', idempotency_key => 'k')")
            await connection.execute('select reactor.submit_many(\'[{"job_type": "x"}]\')')
        finally:
            await connection.execute("reset search_path")


SCHEMA = """
    select 'column' as kind, table_name || '.' || column_name as name,
        concat_ws(' ', data_type, domain_name, column_default, is_nullable) as definition
    from information_schema.columns where table_schema = 'reactor'
    union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'reactor'
    union all select 'constraint', conname, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = 'reactor'::regnamespace and contype <> 'n'
    union all select 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) from pg_trigger
        where not tgisinternal and tgrelid in (select oid from pg_class where relnamespace = 'reactor'::regnamespace)
    union all select 'function', proname, pg_get_functiondef(oid) || proacl::text from pg_proc
        where pronamespace = 'reactor'::regnamespace
    union all select 'grant', relname, relacl::text from pg_class
        where relnamespace = 'reactor'::regnamespace and relacl is not null
    union all select 'comment', objoid::text || objsubid, description from pg_description
        where objoid = 'reactor'::regnamespace
    order by 1, 2, 3
"""


async def test_up_down_up_leaves_the_same_schema(database: str, connection: Connection) -> None:
    """P10, J12"""
    before = [tuple(r) for r in await connection.fetch(SCHEMA)]
    await migrate_down(database, "base")
    left = [tuple(r) for r in await connection.fetch(SCHEMA)]
    assert {name for _, name, _ in left} == {"alembic_version.version_num", "alembic_version_pkc", "alembic_version"}
    await migrate(database)
    assert [tuple(r) for r in await connection.fetch(SCHEMA)] == before


async def test_every_table_and_every_column_of_jobs_has_a_comment(connection: Connection) -> None:
    without_comment = await connection.fetch(
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where c.oid = 'reactor.jobs'::regclass and a.attnum > 0 and not a.attisdropped "
        "and col_description(c.oid, a.attnum) is null union all "
        "select c.relname, null from pg_class c where c.relnamespace = 'reactor'::regnamespace and c.relkind = 'r' "
        "and c.relname <> 'alembic_version' and obj_description(c.oid) is null"
    )
    assert [tuple(r) for r in without_comment] == []
