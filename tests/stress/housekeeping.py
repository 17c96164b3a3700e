"""What pods do on timers, all the time: promote due jobs, take back those of dead workers, continue large ends."""

import asyncio

from reactor.database import statements
from tests.stress.world import World


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
