"""Behind pgbouncer in transaction mode: each transaction may get another session."""

from pathlib import Path

import asyncpg
import pytest

from reactor import Context, Reactor, Registry
from reactor.database.connection import Connection, connect
from tests.support.pods import StartPod
from tests.support.pooler import pooler
from tests.support.until import until

JOBS = (
    "insert into reactor.jobs (job_type) "
    "select t from unnest('{noop,ledger,fan_out}'::text[]) t cross join generate_series(1, 30)"
)


async def test_jobs_run_by_polling_alone(start_pod: StartPod, pooled: tuple[str, str]) -> None:
    """Without a direct address no notification arrives, and all jobs run."""
    through_pooler, direct = pooled
    async with connect(direct, name="test") as connection:
        await connection.execute("create table ledger (job_id bigint)")
        await start_pod(url=through_pooler, POLL_SECONDS=0.3)
        await connection.execute(JOBS)

        async def all_completed() -> bool:
            return not await connection.fetchval("select exists (select from reactor.jobs where state <> 'completed')")

        await until(all_completed)
        assert await connection.fetchval("select count(*) from ledger") == 90


async def test_with_a_direct_address_notifications_arrive(start_pod: StartPod, pooled: tuple[str, str]) -> None:
    through_pooler, direct = pooled
    async with connect(direct, name="test") as connection:
        await connection.execute("create table ledger (job_id bigint)")
        await start_pod(url=through_pooler, LISTEN_URL=direct, POLL_SECONDS=0)
        for _ in range(3):
            await connection.execute(JOBS)

            async def all_completed() -> bool:
                return not await connection.fetchval(
                    "select exists (select from reactor.jobs where state <> 'completed')"
                )

            await until(all_completed)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_jobs_end_whatever_the_default_isolation_and_other_clients_keep_theirs(
    database: str, connection: Connection, folder: Path, isolation: str
) -> None:
    await connection.execute("create table ledger (job_id bigint)")
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set default_transaction_isolation = '{isolation}'")
    registry = Registry()

    @registry.register("noop", max_attempts=1)
    async def noop() -> None:
        pass

    @registry.register("ledger", max_attempts=1)
    async def ledger(ctx: Context) -> None:
        async with ctx.transaction() as inside:
            await inside.execute("insert into ledger values ($1)", ctx.job.id)
        await ctx.chain("noop")

    async with pooler(database, folder, rotates=True) as between:
        await connection.execute(
            "with one as (insert into reactor.jobs (job_type) "
            "select t from unnest('{noop,ledger}'::text[]) t cross join generate_series(1, 60) returning id), "
            "two as (insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 60) returning id) "
            "insert into reactor.dependencies (job_id, depends_on) "
            "select two.id, one.id from two cross join one where one.id % 60 = two.id % 60"
        )
        async with Reactor(between.url, registry=registry, poll_seconds=0.3):

            async def all_ended() -> bool:
                return not await connection.fetchval(
                    "select exists (select from reactor.jobs where finished_at is null)"
                )

            await until(all_ended)
        states = await connection.fetch("select state, count(*) from reactor.jobs group by state")
        assert [tuple(state) for state in states] == [("completed", 240)]
        assert await connection.fetchval("select count(*) from ledger") == 60
        for _ in range(6):
            other = await asyncpg.connect(between.url, statement_cache_size=0)
            assert await other.fetchval("show default_transaction_isolation") == isolation
            await other.close()
