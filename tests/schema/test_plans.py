"""Plans cached with few rows stay good with many, and streams read only what changed."""

import pytest

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending


async def claim_and_settle(connection: Connection, worker: Worker) -> int:
    jobs = await claim(connection, worker, 10)
    return len(await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in jobs]))


async def test_claim_and_settle_never_read_the_whole_table(connection: Connection, worker: Worker) -> None:
    for _ in range(20):
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        assert await claim_and_settle(connection, worker) == 1
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 2000)")
    async with connection.transaction():
        assert await claim_and_settle(connection, worker) == 10
        read = "select seq_scan from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
        assert await connection.fetchval(read) == 0


async def test_no_function_that_rules_out_plans_is_compiled(connection: Connection) -> None:
    """Before PostgreSQL 18 a plan that was ruled out and is used nevertheless counts as very expensive. JIT then
    compiles it, which takes longer than the statement."""
    compiled = await connection.fetch(
        "select proname from pg_proc where pronamespace = 'reactor'::regnamespace"
        " and exists (select from unnest(proconfig) c where c ~ '^enable_')"
        " and not 'jit=off' = any (proconfig)"
    )
    assert [r["proname"] for r in compiled] == []


async def test_the_end_of_a_job_reads_only_its_own_dependants(connection: Connection, worker: Worker) -> None:
    async with connection.transaction():
        await connection.execute("insert into reactor.jobs (job_type) select 'other' from generate_series(1, 10000)")
        await connection.execute(
            "insert into reactor.dependencies (job_id, depends_on) "
            "select id, id - 5000 from reactor.jobs where id > 5000"
        )
    await connection.execute("analyze reactor.jobs, reactor.dependencies")
    async with connection.transaction():
        await connection.execute("insert into reactor.jobs (job_type) values ('work'), ('work')")
        await connection.execute("insert into reactor.dependencies (job_id, depends_on) values (10002, 10001)")
    read = "select idx_tup_fetch from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
    async with connection.transaction():
        before = await connection.fetchval(read)
        assert await claim_and_settle(connection, worker) == 1
        assert await connection.fetchval(read) - before < 200
        assert await claim_and_settle(connection, worker) == 1, "its dependant can be claimed"


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_overview_reads_only_changed_jobs(connection: Connection, is_new: bool) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 20000)")
    await connection.execute("vacuum analyze reactor.jobs")
    cursor = await connection.fetchval("select txid_current_snapshot()")
    await connection.execute("insert into reactor.jobs (job_type) values ('work')")
    asked = (None, [cursor], 500, cursor[0]) if is_new else (cursor, [], 500, None)
    assert len(await connection.fetch(statements.OVERVIEW_CHANGES, *asked)) == 2
    plan = await connection.fetch("explain (analyze, buffers, timing off) " + statements.OVERVIEW_CHANGES, *asked)
    buffers = next(line[0] for line in plan if "Buffers: shared" in line[0])
    hit = sum(int(part.partition("=")[2]) for part in buffers.split() if part.startswith(("hit=", "read=")))
    assert hit < 200, buffers


@pytest.mark.parametrize("relation", ["jobs", "job_states"])
@pytest.mark.parametrize("role", ["reactor_producer", "reactor_worker"])
async def test_a_job_is_found_by_its_type_and_key_in_an_index(connection: Connection, relation: str, role: str) -> None:
    """Also one that was cancelled, and by a producer, whose policy must not prevent it."""
    await connection.execute(
        "grant reactor_producer to current_user;"
        "insert into reactor.jobs (job_type, idempotency_key)"
        " select 'work', 'key ' || n from generate_series(1, 5000) n"
    )
    await connection.execute("update reactor.jobs set state = 'cancelled' where id % 2 = 0")
    await connection.execute("vacuum analyze reactor.jobs")
    async with connection.transaction():
        await connection.execute(f"set local role {role}")
        query = f"select id, state from reactor.{relation} where job_type = $1 and idempotency_key = $2"
        plan = await connection.fetch("explain " + query, "work", "key 7")
        assert any("using jobs_idempotency_key_is_taken" in line[0] for line in plan), plan


async def test_a_cancelled_job_does_not_hold_its_key(connection: Connection) -> None:
    insert = (
        "insert into reactor.jobs (job_type, idempotency_key) values ('work', 'k') on conflict do nothing returning id"
    )
    for _ in range(3):
        job_id = await connection.fetchval(insert)
        assert job_id is not None
        assert await connection.fetchval(insert) is None
        await connection.execute("update reactor.jobs set state = 'cancelled' where id = $1", job_id)
