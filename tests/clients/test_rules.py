"""The rules for all clients in docs/clients/README.md."""

import re
from collections.abc import AsyncIterator

import asyncpg
import pytest

from reactor.database.connection import Connection
from tests.clients.registry import HERE
from tests.clients.routes import direct
from tests.clients.run import PASSWORD, environment

PAGE = (HERE.parent.parent / "docs" / "clients" / "README.md").read_text()


@pytest.fixture
async def logins(database: str, connection: Connection) -> AsyncIterator[list[Connection]]:
    """The two logins of the page, with the roles that it prints."""
    [printed] = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    names = ["billing_web", "billing_batch"]
    opened: list[Connection] = []
    for name in names:
        await connection.execute(f"create role {name} login password '{PASSWORD}' in role reactor_producer")
    await connection.execute(printed)
    try:
        async with direct(database) as (host, port):
            name = await connection.fetchval("select current_database()")
            for login in names:
                url = environment(host, port, login, name)["DATABASE_URL"]
                opened.append(await asyncpg.connect(url))
            yield opened
            for one in opened:
                await one.close()
    finally:
        await connection.execute(f"drop role {', '.join(names)}, billing")


@pytest.fixture
async def producer(connection: Connection) -> AsyncIterator[Connection]:
    await connection.execute("set role reactor_producer")
    yield connection
    await connection.execute("reset role")


async def test_logins_that_insert_as_one_role_see_each_others_jobs(logins: list[Connection]) -> None:
    web, batch = logins
    job = await web.fetchrow("insert into reactor.jobs (job_type) values ('bill') returning id, created_by")
    assert job
    assert job["created_by"] == "billing"
    assert await batch.fetchval("select job_type from reactor.jobs where id = $1", job["id"]) == "bill"


async def test_the_last_id_can_be_asked_for(producer: Connection) -> None:
    job_id = await producer.fetchval("insert into reactor.jobs (id, job_type) values (default, 'x') returning id")
    assert await producer.fetchval("select lastval()") == job_id
    assert await producer.fetchval("select currval('reactor.jobs_id_seq')") == job_id
    sequence = "select currval(pg_get_serial_sequence('reactor.jobs', 'id'))"
    assert await producer.fetchval(sequence) == job_id


async def test_what_a_producer_writes_to_the_engines_columns_is_ignored(producer: Connection) -> None:
    plain = await producer.fetchrow("insert into reactor.jobs (job_type) values ('x') returning *")
    written = await producer.fetchrow(
        "insert into reactor.jobs (job_type, state, attempts, created_at, created_by, result, error, locked_by, "
        "finished_at, is_current, parked, waiting_on, parent_id) "
        "values ('x', 'completed', 3, '2001-01-01', 'postgres', '1', 'e', 'pod', '2001-01-01', true, true, 2, 1) "
        "returning *"
    )
    assert plain
    assert written
    own = {"id", "pipeline_id", "changed_xid", "inserted_xid", "created_at"}
    assert [name for name, value in plain.items() if name not in own and value != written[name]] == []
    assert written["created_at"] > plain["created_at"]


async def test_a_payload_of_json_null_is_refused(producer: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="object"):
        await producer.execute("insert into reactor.jobs (job_type, payload) values ('x', 'null')")


@pytest.mark.parametrize("statement", ["update reactor.jobs set priority = 1", "delete from reactor.jobs"])
async def test_producers_only_insert(producer: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await producer.execute(statement)


async def test_a_conflict_target_is_refused(producer: Connection) -> None:
    with pytest.raises(asyncpg.InvalidColumnReferenceError):
        await producer.execute(
            "insert into reactor.jobs (job_type, idempotency_key) values ('x', 'k') "
            "on conflict (job_type, idempotency_key) do nothing"
        )


async def test_copy_goes_to_the_view_of_new_jobs(producer: Connection) -> None:
    async def copy(table: str) -> None:
        await producer.copy_records_to_table(table, schema_name="reactor", columns=["job_type"], records=[("x",)])

    with pytest.raises(asyncpg.FeatureNotSupportedError, match="row-level security"):
        await copy("jobs")
    await copy("new_jobs")
    assert await producer.fetchval("select queue from reactor.jobs") == "default"


async def test_the_states_of_all_jobs_are_visible(connection: Connection, producer: Connection) -> None:
    await connection.execute("reset role; insert into reactor.jobs (job_type) values ('others')")
    await connection.execute("set role reactor_producer")
    assert await producer.fetchval("select count(*) from reactor.jobs") == 0
    assert await producer.fetchval("select state from reactor.job_states where job_type = 'others'") == "pending"
