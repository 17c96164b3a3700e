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
from reactor.job_log import JobLog, LogOptions, Room
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, register_worker
from reactor.lifecycle.log_writer import write_logs
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
    "insert into reactor.jobs (id, job_type) values (default, 'a') returning *",
    "insert into reactor.jobs (job_type, idempotency_key) values ('a', 'k') on conflict do nothing",
    "select * from reactor.jobs",
    "select id, pipeline_id, job_type, scope, idempotency_key, state from reactor.job_states",
    "select * from reactor.dependencies",
    "select * from reactor.submit('a', '{\"x\": 1}', idempotency_key => 'k2', scope => 's2', exclusive => true)",
    "select * from reactor.submit('a', '{\"x\": 1}'::json, timeout_seconds => 1.5::float8, max_attempts => 3::bigint)",
    'select * from reactor.submit_many(\'[{"job_type": "a"}]\')',
    "with two as (insert into reactor.jobs (job_type) values ('a'), ('b') returning id) select from two",
    "insert into reactor.new_jobs (job_type, payload) values ('a', '{}')",
    "select version_num from reactor.alembic_version",
    "select last_value from reactor.jobs_id_seq",
]

DENIED = [
    "update reactor.jobs set state = 'cancelled'",
    "update reactor.jobs set priority = 0",
    "insert into reactor.jobs (job_type, idempotency_key) values ('a', 'k')"
    " on conflict (id) do update set priority = 1",
    "delete from reactor.jobs",
    "truncate reactor.jobs cascade",
    "select id from reactor.jobs for share",
    "lock table reactor.jobs in share mode",
    "update reactor.job_states set state = 'failed'",
    "delete from reactor.job_states",
    "update reactor.dependencies set resolved = true",
    "delete from reactor.dependencies",
    *(
        f"select * from reactor.{table}"
        for table in ("attempts", "steps", "logs", "workers", "queues", "schedules", "audit", "settings", "workload")
    ),
    "insert into reactor.audit (what) values ('x')",
    "select reactor.write_logs('{1}', null, null, null, 1, false, null, null, null, null, null, null, null)",
    "update reactor.settings set draining = true",
    "select * from reactor.claim(gen_random_uuid(), 1, null, '{a}', '{1}')",
    "select * from reactor.claim_job(1, gen_random_uuid(), 3)",
    "select reactor.resolve_dependencies('{1}')",
    "select reactor.recompute_dependencies('{1}')",
    "select reactor.free_scopes('{s}')",
    "select reactor.retry('{1}')",
    "select reactor.repair_waiting(1)",
    "select reactor.cancel('{1}', 'x')",
    "select reactor.sweep(1)",
    "select reactor.prune(0, '{pending}', 1, false)",
    "select reactor.notify_jobs()",
    "select nextval('reactor.jobs_id_seq')",
    "select setval('reactor.jobs_id_seq', 1)",
    "select setval('reactor.jobs_notified_at', 1)",
    "select last_value from reactor.jobs_notified_at",
    "select setval('reactor.jobs_notified_by', 1)",
    "insert into reactor.wakeups values ('reactor_jobs')",
    "select reactor.notify_at_end('reactor_jobs')",
    "create table reactor.mine (x int)",
    "create function reactor.mine() returns int language sql return 1",
    "alter table reactor.jobs disable trigger all",
    "alter table reactor.jobs disable row level security",
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


async def test_a_producer_reads_its_own_jobs_and_only_the_states_of_others(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, payload, scope) values ('a', '{\"secret\": 1}', 's')")
    async with acting_as(connection, "reactor_producer") as name:
        own = await connection.fetchrow(
            "insert into reactor.jobs (job_type, payload) values ('b', '{\"mine\": 1}') returning *"
        )
        assert own
        assert (own["created_by"], own["state"]) == (name, "pending")
        assert [dict(r) for r in await connection.fetch("select * from reactor.jobs")] == [dict(own)]
        submitted = await connection.fetchval("select id from reactor.submit('c')")
        chosen = "select id from reactor.jobs where created_by = $1 order by id"
        assert [r["id"] for r in await connection.fetch(chosen, name)] == [own["id"], submitted]
        assert [r["state"] for r in await connection.fetch("select state from reactor.job_states")] == ["pending"] * 3
        # A function in the condition must not see what the policy hides.
        await connection.execute(
            "create function pg_temp.leak(x jsonb) returns boolean cost 0.0000001 language plpgsql as "
            "$$ begin if x ? 'secret' then raise exception 'leaked'; end if; return true; end $$"
        )
        assert len(await connection.fetch("select id from reactor.jobs where pg_temp.leak(payload)")) == 2


async def test_a_login_that_sets_a_role_shares_its_jobs_with_that_role(connection: Connection) -> None:
    """Also through functions that run with their owner's rights."""
    async with acting_as(connection, "reactor_producer") as group:
        await connection.execute("reset session authorization")
        await connection.execute(f"create role {group}_login in role {group}")
        await connection.execute(f"set session authorization {group}_login; set role {group}")
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        await connection.execute("select reactor.submit('a')")
        await connection.execute('select reactor.submit_many(\'[{"job_type": "a"}]\')')
        creators = await connection.fetch("select created_by from reactor.jobs")
        assert [r["created_by"] for r in creators] == [group] * 3
        await connection.execute("reset session authorization; reset role")
        await connection.execute(f"drop role {group}_login")


async def test_a_dependency_is_visible_with_its_job(connection: Connection) -> None:
    insert = (
        "with new as (insert into reactor.jobs (job_type) values ('a'), ('b') returning id)"
        " select array_agg(id order by id) from new"
    )
    connect_both = "insert into reactor.dependencies (job_id, depends_on) values ($2, $1) returning *"
    async with connection.transaction():
        await connection.execute(connect_both, *await connection.fetchval(insert))
    async with acting_as(connection, "reactor_producer"):
        async with connection.transaction():
            ids = await connection.fetchval(insert)
            edge = await connection.fetchrow(connect_both, *ids)
        assert edge
        assert (edge["needs"], edge["resolved"]) == ("completed", None)
        assert [r["job_id"] for r in await connection.fetch("select * from reactor.dependencies")] == [ids[1]]
        in_one_statement = await connection.fetch(
            "with a as (insert into reactor.jobs (job_type) values ('a') returning id),"
            " b as (insert into reactor.jobs (job_type) values ('b') returning id)"
            " insert into reactor.dependencies (job_id, depends_on) select b.id, a.id from a, b returning *"
        )
        assert len(in_one_statement) == 1


ENGINE_COLUMNS = {
    "created_at": "'2020-01-01'",
    "created_by": "'postgres'",
    "changed_xid": "1",
    "inserted_xid": "1",
    "state": "'completed'",
    "attempts": "7",
    "children": "7",
    "waiting_on": "7",
    "is_current": "true",
    "parked": "true",
    "holds_scope": "true",
    "counted": "true",
    "phase": "'taken'",
    "parent_id": "1",
    "attempt_id": "gen_random_uuid()",
    "worker_id": "gen_random_uuid()",
    "locked_by": "'pod'",
    "locked_at": "now()",
    "started_at": "now()",
    "finished_at": "now()",
    "broken_by": "1",
    "quota": "7",
    "progress": "0.5",
    "status_message": "'x'",
    "result": "'{}'",
    "error": "'x'",
}


@pytest.mark.parametrize("column", ENGINE_COLUMNS)
async def test_what_a_producer_writes_to_an_engine_column_is_ignored(connection: Connection, column: str) -> None:
    async with acting_as(connection, "reactor_producer"):
        plain, written = [
            dict(r)
            for r in await connection.fetch(
                f"insert into reactor.jobs (job_type, {column}) values ('a', default), ('a', {ENGINE_COLUMNS[column]})"
                " returning *"
            )
        ]
    assert abs(plain.pop("created_at") - written.pop("created_at")).total_seconds() < 60
    for own in ("id", "pipeline_id"):
        assert plain.pop(own) != written.pop(own)
    assert written == plain


async def test_null_takes_the_default_of_every_column(connection: Connection) -> None:
    """ORMs that write all columns write NULL for those that were not set."""
    columns = await connection.fetchval(
        "select string_agg(attname, ', ') from pg_attribute where attrelid = 'reactor.jobs'::regclass and attnum > 0"
        " and not attisdropped and attname not in ('id', 'job_type')"
    )
    nulls = ", ".join(["null"] * len(columns.split(", ")))
    written = f"insert into reactor.jobs (job_type, {columns}) values ('a', {nulls}) returning *"
    for role in ("reactor_producer", "reactor_worker", None):
        if role:
            async with acting_as(connection, role):
                row = await connection.fetchrow(written)
        else:
            row = await connection.fetchrow(written)
        plain = await connection.fetchrow("insert into reactor.jobs (job_type) values ('a') returning *")
        assert row
        assert plain
        different = {name for name, value in row.items() if value != plain[name]}
        assert different <= {"id", "pipeline_id", "created_at", "created_by", "changed_xid", "inserted_xid"}
        assert not [name for name in different if row[name] is None]


@pytest.mark.parametrize("column", ["pipeline_id", "queue", "priority", "exclusive", "tags", "payload"])
async def test_null_takes_the_default_also_in_a_row_with_options(connection: Connection, column: str) -> None:
    options = {"queue": "'q'", "priority": "5", "tags": "'{t}'"} | {column: "null"}
    plain = await connection.fetchval(f"insert into reactor.jobs (job_type) values ('a') returning {column}")
    written = await connection.fetchval(
        f"insert into reactor.jobs (job_type, {', '.join(options)}) values ('a', {', '.join(options.values())}) "
        f"returning {column}"
    )
    assert written is not None
    assert written == plain or column == "pipeline_id"


async def test_a_producer_can_not_choose_the_id_of_a_job(connection: Connection) -> None:
    async with acting_as(connection, "reactor_producer"):
        chosen = "insert into reactor.jobs (id, job_type) overriding system value values ($1, 'a')"
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):  # the session has drawn no id
            await connection.execute(chosen, 99)
        last = await connection.fetchval("insert into reactor.jobs (job_type) values ('a') returning id")
        for number in (last - 1, last + 1, -1):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="leave_out_the_id_of_a_job_or_write_default"):
                await connection.execute(chosen, number)
        bulk = "insert into reactor.jobs (job_type) select 'a' from generate_series(1, 100) order by random()"
        assert await connection.execute(bulk) == "INSERT 0 100"
    assert await connection.execute(chosen, 1_000_000) == "INSERT 0 1"  # the owner may: a restore does


async def test_a_producer_can_not_name_a_parent(connection: Connection) -> None:
    async with acting_as(connection, "reactor_producer"):
        await connection.execute('select reactor.insert_jobs(\'[{"job_type": "a"}]\', 7)')
        assert await connection.fetchval("select parent_id from reactor.jobs") is None


async def test_a_job_belongs_to_the_role_that_runs_submit(connection: Connection) -> None:
    """Not to the session's: a maintenance command runs the functions of a table's owner in another role's session."""
    async with acting_as(connection, "reactor_producer") as name:
        await connection.execute(
            "create temp table trap (x int); insert into trap values (1), (2);"
            "create function pg_temp.notify_now() returns void language plpgsql as "
            "$$ begin set constraints all immediate; end $$;"
            "create function pg_temp.submit(x int) returns int language plpgsql immutable as "
            "$$ begin if session_user <> current_user then "
            "perform pg_temp.notify_now(); "
            "perform reactor.submit('forged'), reactor.submit_many('[{\"job_type\": \"forged\"}]'); "
            "end if; return x; end $$;"
            "create index on trap (pg_temp.submit(x))"
        )
        await connection.execute("reset session authorization")
        await connection.execute("analyze trap")
        creators = await connection.fetch("select distinct created_by from reactor.jobs where job_type = 'forged'")
        assert [r["created_by"] for r in creators] == [name]
        await connection.execute("drop table trap cascade")


async def test_compressed_tags_are_measured_as_text(connection: Connection) -> None:
    async with acting_as(connection, "reactor_producer"):
        await connection.execute("set plan_cache_mode = force_generic_plan")
        await connection.execute(
            "create temp table long_tags (tags text[]); insert into long_tags values (array[repeat('a', 100000)])"
        )
        for table in ("jobs", "new_jobs"):
            with pytest.raises(asyncpg.CheckViolationError, match="too long"):
                await connection.execute(
                    f"insert into reactor.{table} (job_type, tags) select 'a', tags from long_tags"
                )
        await connection.execute("drop table long_tags; reset plan_cache_mode")


async def test_estimates_reveal_nothing_of_other_producers(connection: Connection) -> None:
    secrets = "insert into reactor.jobs (job_type, error) select 'a', 'secret ' || n from generate_series(1, 1000) n"
    await connection.execute(secrets)
    async with acting_as(connection, "reactor_producer") as name:
        await connection.execute("insert into reactor.jobs (job_type) select 'a' from generate_series(1, 1000)")
        await connection.execute("reset session authorization")
        await connection.execute("analyze reactor.jobs")
        await connection.execute(f"set session authorization {name}")
        plans = [
            await connection.fetchval(f"explain (format json) select from reactor.jobs where error >= '{prefix}'")
            for prefix in ("a", "z")
        ]
    assert plans[0].replace("'a'", "'z'") == plans[1]


async def test_a_producer_can_not_resolve_its_own_dependencies(connection: Connection) -> None:
    async with acting_as(connection, "reactor_producer"), connection.transaction():
        await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b')")
        ids = [r["id"] for r in await connection.fetch("select id from reactor.jobs order by id")]
        await connection.execute(
            "insert into reactor.dependencies (job_id, depends_on, needs, resolved) values ($2, $1, null, true)", *ids
        )
    edge = await connection.fetchrow("select needs, resolved from reactor.dependencies")
    assert edge
    assert tuple(edge) == ("completed", False)


async def test_a_producer_copies_jobs_through_the_view(connection: Connection) -> None:
    """PostgreSQL refuses COPY into a table with row-level security."""
    rows = [("a", '{"x": 1}', None), ("b", "{}", ["t"])]
    async with acting_as(connection, "reactor_producer") as name:
        await connection.copy_records_to_table(
            "new_jobs", schema_name="reactor", columns=["job_type", "payload", "tags"], records=rows
        )
        jobs = await connection.fetch("select job_type, payload, tags, queue, created_by from reactor.jobs order by id")
    assert [tuple(r) for r in jobs] == [
        ("a", '{"x": 1}', [], "default", name),
        ("b", "{}", ["t"], "default", name),
    ]


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
            room = Room(LogOptions())
            job_log = JobLog(job.id, job.attempt_id, 1, 0, room, lambda _: None, is_later_attempt=True)
            job_log.append("info", None, "first", None)
            assert (await write_logs(connection, [(job_log, job_log.take(10))]))["error"] is None
            job_log.confirm()
            job_log.append("info", None, "last", None)
            assert await settle(connection, [Ending(job.id, job.attempt_id, Completed(), log=job_log)])
        assert await connection.fetchval("select count(*) from reactor.logs") == 4
        calls: dict[str, list[Any]] = {
            "RETRY": [[1]],
            "CANCEL": [[1], "x"],
            "REPAIR_WAITING": [10],
            "SWEEP": [10],
            "RECOVER": [2],
            "PROMOTE_DUE": [10],
            "UNPARK_SCOPES": [],
            "PRUNE": [0.0, ["completed", "cancelled"], 10, False, "{}", True, False],
        }
        for name, arguments in calls.items():
            await connection.fetch(getattr(statements, name), *arguments)
        for table in ("jobs", "logs"):
            assert await connection.fetchval(f"select count(*) from reactor.{table}") == 0
        for statement in (
            "drop table reactor.jobs",
            "alter table reactor.jobs add x int",
            "create table reactor.x ()",
            "update reactor.alembic_version set version_num = 'x'",
            "delete from reactor.audit",
            "set role reactor_owner",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_the_audit_holds_the_role_that_wrote_it_and_the_databases_time(connection: Connection) -> None:
    async with acting_as(connection, "reactor_worker") as name:
        for column, value in {"at": "'2020-01-01'", "written_by": "'anne'", "id": "7"}.items():
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(
                    f"insert into reactor.audit ({column}, what) overriding system value values ({value}, 'x')"
                )
        await connection.execute(statements.RECORD_ACTION, "bob", "cancel", "7", "cli", "{}")
        for change in ("update reactor.audit set who = 'anne'", "truncate reactor.audit"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(change)
        [row] = await connection.fetch(
            "select *, at between now() - interval '1 min' and now() as is_now from reactor.audit"
        )
        assert (row["who"], row["written_by"], row["is_now"]) == ("bob", name, True)


async def test_a_viewer_may_read_everything_and_change_nothing(connection: Connection) -> None:
    async with acting_as(connection, "reactor_viewer"):
        for table in (
            "jobs",
            "dependencies",
            "steps",
            "attempts",
            "logs",
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
            ("txid_current", "", "bigint"),
            ("current_setting", "a text", "text"),
            ("num_nulls", "variadic a text[]", "int"),
            ("octet_length", "a text", "int"),
            ("gen_random_uuid", "", "uuid"),
            ("format", "a text, variadic b text[]", "text"),
            ("jsonb_typeof", "a jsonb", "text"),
        ):
            await connection.execute(
                f"create function trap.{name}({arguments}) returns {answer} language plpgsql as "
                f"$$ begin raise exception 'hijacked: % as %', '{name}', current_user; end $$"
            )
        await connection.execute(
            "create function trap.equal(a text, b text) returns boolean language plpgsql as "
            "$$ begin raise exception 'hijacked: = as %', current_user; end $$;"
            "create operator trap.= (leftarg = text, rightarg = text, function = trap.equal)"
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
    """P10"""
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
