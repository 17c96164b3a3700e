"""Pods are killed at random moments while pipelines run: a few times in the suite, 200 times in `make chaos`."""

import asyncio
import os
import random
from contextlib import suppress

from reactor import Pipeline
from reactor.database.connection import Connection
from tests.support.pods import StartPod
from tests.support.until import until

KILLS = int(os.environ.get("REACTOR_TEST_CHAOS_KILLS", "6"))
SEED = int(os.environ.get("REACTOR_TEST_CHAOS_SEED", "0")) or random.randrange(2**32)
LEAVES = 20
SETTINGS = {"LEASE_SECONDS": 3, "HEARTBEAT_SECONDS": 0.5, "POLL_SECONDS": 2}


async def submit(connection: Connection) -> None:
    pipeline = Pipeline()
    first = pipeline.job("fan_out")
    pipeline.job("fan_in", depends_on=[pipeline.job("ledger", depends_on=[first]) for _ in range(LEAVES)])
    await pipeline.submit(connection)


async def test_pipelines_complete_although_pods_are_killed(start_pod: StartPod, connection: Connection) -> None:
    """Guarantees 1 to 6, D8, D9: every ledger row once, every fan-in once, no orphan, no pipeline stuck."""
    print(f"\nREACTOR_TEST_CHAOS_SEED={SEED}, {KILLS} kills")
    chance = random.Random(SEED)
    await connection.execute("create table ledger (job_id bigint)")
    pods = [await start_pod("--concurrency", "8", **SETTINGS) for _ in range(2)]
    pipelines = 0
    for number in range(KILLS):
        for _ in range(3):
            await submit(connection)
            pipelines += 1
        await asyncio.sleep(chance.uniform(0, 0.6))
        place = chance.randrange(len(pods))
        if chance.random() < 0.3:
            pods[place].kill()
            pods[place] = await start_pod("--concurrency", "8", **SETTINGS)
        else:
            with suppress(IndexError):  # it is being replaced
                pods[place].kill(chance.choice(pods[place].workers))
        if number % 20 == 19:
            print(f"{number + 1} killed, {pipelines} pipelines submitted")

    async def all_ended() -> bool:
        return not await connection.fetchval("select exists (select from reactor.jobs where finished_at is null)")

    await until(all_ended, within_seconds=60 + KILLS)
    jobs = await connection.fetch("select state, count(*) from reactor.jobs group by 1")
    assert {row["state"]: row["count"] for row in jobs} == {"completed": pipelines * (LEAVES + 3)}
    assert await connection.fetchval("select count(*) from ledger") == pipelines * (LEAVES + 3)
    assert await connection.fetchval("select count(distinct job_id) from ledger") == pipelines * (LEAVES + 3)
    fan_ins = await connection.fetch("select result->>'leaves' as n from reactor.jobs where job_type = 'fan_in'")
    assert [int(row["n"]) for row in fan_ins] == [LEAVES] * pipelines
    orphans = (
        "select count(*) from reactor.jobs c where parent_id is not null and not exists (select from reactor.jobs p "
    )
    assert await connection.fetchval(orphans + "where p.id = c.parent_id and p.pipeline_id = c.pipeline_id)") == 0
    assert await connection.fetchval("select count(*) from reactor.pipelines where state <> 'completed'") == 0
    assert await connection.fetchval("select count(*) from reactor.jobs where worker_id is not null") == 0
