"""The sweeper of a pod, which continues what others could not finish."""

import asyncio

from reactor.client.submit import NewJob, submit_many
from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from reactor.outcome import Failed
from reactor.pod.sweeper import keep_sweeping
from tests.support.jobs import run
from tests.support.until import until


async def test_a_pod_without_free_slots_continues_a_large_end(
    connection: Connection, worker: Worker, database: str
) -> None:
    """Without a claim: a sweeper runs alone here."""
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 2502)]
        await connection.execute(
            "insert into reactor.dependencies select id, $2 from unnest($1::bigint[]) id", ids[1:], ids[0]
        )
    await run(connection, worker, ids[0], Failed("x"))
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'waiting'") == 1501
    sweeping = asyncio.create_task(keep_sweeping(database, "pod-1", longest_pause_seconds=600))
    try:
        await until(lambda: connection.fetchval("select not exists (select from reactor.jobs where state = 'waiting')"))
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])
    assert await connection.fetchval("select count(*) from reactor.unresolved") == 0
