"""What pods do on timers, all the time: promote due jobs, take back those of dead workers, continue large ends.

And what only time does otherwise: limits grow old."""

import asyncio

from reactor.database import statements
from tests.stress.world import World

# For ten seconds after a claim first saw a limit, claims look for jobs that were claimed without knowing it. A round is
# shorter. So this lets the time pass where it makes no difference: no transaction is older, and nothing is uncounted.
_AGE_LIMITS = """
update reactor.limits l set seen_at = l.seen_at - interval '10 seconds'
where l.seen_at > clock_timestamp() - interval '10 seconds'
    and not exists (
        select from pg_stat_activity a
        where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start <= l.seen_at)
    and not exists (
        select from reactor.jobs j
        where j.worker_id is not null and not j.counted and l.max_running is not null
            and l.queue in ('', j.queue) and l.job_type in ('', j.job_type)
            and (l.lane = '' or l.lane = j.lane or l.lane = '*' and j.lane is not null))
"""


async def promote(world: World, name: str) -> None:
    async with world.sessions.open(name) as connection:
        while not world.is_over:
            async with world.sessions.doing(connection, "promote"):
                await connection.fetchrow(statements.PROMOTE_DUE, 100)
            await asyncio.sleep(0.02)


async def sweep(world: World, name: str) -> None:
    chance = world.chance(name)
    async with world.sessions.open(name) as connection:
        while not world.is_over:
            async with world.sessions.doing(connection, "sweep"):
                world.report.count("jobs swept", len(await connection.fetch(statements.SWEEP, chance.choice((1, 20)))))
            async with world.sessions.doing(connection, "resolve more"):
                await connection.fetchval(statements.RESOLVE_MORE, chance.choice((1, 20)))
            await asyncio.sleep(chance.uniform(0, 0.1))


async def age_limits(world: World, name: str) -> None:
    chance = world.chance(name)
    async with world.sessions.open(name) as connection:
        while not world.is_over:
            if world.mix.ages_limits:
                async with world.sessions.doing(connection, "age limits"):
                    await connection.execute(_AGE_LIMITS)
            await asyncio.sleep(chance.uniform(0, 0.4))
