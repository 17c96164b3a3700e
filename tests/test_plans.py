"""Plans that a worker keeps from quiet times do for a crowd too, and streams don't read what has long been told."""

import pytest

from reactor import statements
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


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_overview_reads_what_changed_and_not_all_jobs(connection: Connection, is_new: bool) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 20000)")
    await connection.execute("vacuum analyze reactor.jobs")
    cursor = await connection.fetchval("select pg_current_snapshot()")
    await connection.execute("insert into reactor.jobs (job_type) values ('work')")
    asked = (None, [cursor], 500, cursor[0]) if is_new else (cursor, [], 500, None)
    assert len(await connection.fetch(statements.OVERVIEW, *asked)) == 2
    plan = await connection.fetch("explain (analyze, buffers, timing off) " + statements.OVERVIEW, *asked)
    buffers = next(line[0] for line in plan if "Buffers: shared" in line[0])
    hit = sum(int(part.partition("=")[2]) for part in buffers.split() if part.startswith(("hit=", "read=")))
    assert hit < 200, buffers
