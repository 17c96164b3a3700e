"""Behind pgbouncer in transaction mode: each transaction may get another session."""

from reactor.database.connection import connect
from tests.support.pods import StartPod
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
