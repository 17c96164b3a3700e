"""Plans that a worker keeps from quiet times do for a crowd too."""

from reactor.claim import claim
from reactor.database import Connection
from reactor.lease import Worker
from reactor.outcome import Completed, Ending
from reactor.settle import settle


async def turn(connection: Connection, worker: Worker) -> int:
    jobs = await claim(connection, worker, 10)
    return len(await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in jobs]))


async def test_claim_and_settle_never_read_the_whole_table(connection: Connection, worker: Worker) -> None:
    for _ in range(20):
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        assert await turn(connection, worker) == 1
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 2000)")
    async with connection.transaction():
        assert await turn(connection, worker) == 10
        read = "select seq_scan from pg_stat_xact_user_tables where relid = 'reactor.jobs'::regclass"
        assert await connection.fetchval(read) == 0
