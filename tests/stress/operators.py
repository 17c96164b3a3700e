"""Operators, and the pods' repairs: each action is a function of a connection."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from tests.stress.model import TERMINAL
from tests.stress.world import QUEUES, World

_MOST = 10

Action = Callable[[World, Connection, random.Random], Awaitable[None]]


async def operate(world: World, name: str) -> None:
    chance = world.chance(name)
    async with world.sessions.open(name) as connection:
        while await world.turn(name, chance, longer=2.0):
            for feature, action in ACTIONS.items():
                if world.mix.has(feature, chance):
                    await action(world, connection, chance)


def _some(world: World, ids: set[int], chance: random.Random) -> list[int]:
    """Any of these jobs, or some of one scope, or that workers hold, or with dependencies: where actions meet."""
    jobs, found = world.model.jobs, list(ids)
    match chance.randrange(4):
        case 0:
            scopes = {jobs[job_id].now.scope for job_id in found} - {None}
            scope = chance.choice(sorted(filter(None, scopes))) if scopes else None
            found = [job_id for job_id in found if jobs[job_id].now.scope == scope]
        case 1:
            found = [job_id for job_id in found if jobs[job_id].now.worker_id] or found
        case 2:
            found = [job_id for job_id in found if jobs[job_id].needs] or found
    return sorted(chance.sample(found, min(len(found), chance.randint(1, _MOST))))


async def _cancel(world: World, connection: Connection, chance: random.Random) -> None:
    ids = _some(world, world.model.unfinished | world.model.held, chance)
    async with world.sessions.doing(connection, "cancel"):
        await connection.fetch(statements.CANCEL, ids, "the stress cancelled it")


async def _retry(world: World, connection: Connection, chance: random.Random) -> None:
    ids = _some(world, world.model.finished, chance)
    # Another job may hold the exclusive scope.
    async with world.sessions.doing(connection, "retry", refusals=[asyncpg.UniqueViolationError]):
        await connection.fetch(statements.RETRY, ids)


async def _recover(world: World, connection: Connection, chance: random.Random) -> None:
    for job_id in world.model.held_by_dead(frozenset(world.attempts.dead))[:2]:
        world.attempts.recovered.add(job_id)
        async with world.sessions.doing(connection, "recover"):
            await connection.fetch(statements.RECOVER, job_id)


async def _pause(world: World, connection: Connection, chance: random.Random) -> None:
    """And resumes it, or everything would come to a standstill."""
    queue = chance.choice(QUEUES)
    for paused in (True, False):
        async with world.sessions.doing(connection, "pause"), connection.transaction():
            await connection.fetchval(statements.PAUSE_QUEUE, queue, paused)
            if world.mix.has("slow commits", chance):
                await asyncio.sleep(chance.uniform(0, 0.05))
        await asyncio.sleep(chance.uniform(0, 0.2))


async def _limit(world: World, connection: Connection, chance: random.Random) -> None:
    await _set_limit(world, connection, chance.choice(QUEUES), chance.choice((None, 0, 1, 3, 10, 30)))


async def _set_limit(world: World, connection: Connection, queue: str, max_running: int | None) -> None:
    loop = asyncio.get_running_loop()
    async with world.sessions.doing(connection, "limit"):
        world.limits.change(queue, max_running, loop.time())
        await connection.fetchval(statements.LIMIT_QUEUE, queue, max_running)
        world.limits.change(queue, max_running, loop.time())


async def _drain(world: World, connection: Connection, chance: random.Random) -> None:
    for draining in (True, False):
        async with world.sessions.doing(connection, "drain"):
            await connection.fetchval(statements.SET_DRAINING, draining)
        await asyncio.sleep(chance.uniform(0, 0.1))


async def _prune(world: World, connection: Connection, chance: random.Random) -> None:
    await prune(world, connection, _some_states(chance), archive=False)


async def _archive(world: World, connection: Connection, chance: random.Random) -> None:
    await prune(world, connection, _some_states(chance), archive=True)


def _some_states(chance: random.Random) -> list[str]:
    """Often only some: then jobs outlive those that they depended on."""
    return sorted(TERMINAL) if chance.random() < 0.5 else chance.sample(sorted(TERMINAL), 2)


async def _repair(world: World, connection: Connection, chance: random.Random) -> None:
    """A job that is repaired is the trace of a bug. Unparking a scope that has a leader changes nothing."""
    async with world.sessions.doing(connection, "repair"):
        for job in await connection.fetch(statements.REPAIR_WAITING, 10):
            world.report.violation("a job waited for nothing and was repaired", f"job {job['id']}")
    async with world.sessions.doing(connection, "unpark"):
        await connection.fetch(statements.UNPARK_SCOPES)
    async with world.sessions.doing(connection, "forget claims"):
        await connection.execute(statements.FORGET_CLAIMS, 100)


ACTIONS: dict[str, Action] = {
    "cancel": _cancel,
    "retry": _retry,
    "recover": _recover,
    "pause": _pause,
    "limit": _limit,
    "drain": _drain,
    "prune": _prune,
    "archive": _archive,
    "repair": _repair,
}


async def prune(
    world: World, connection: Connection, states: Sequence[str] = tuple(sorted(TERMINAL)), *, archive: bool
) -> None:
    """All pipelines that have ended in these states, without their scopes' current jobs."""
    place: str | None = "{}"
    while place is not None:
        async with world.sessions.doing(connection, "prune"):
            row = await connection.fetchrow(statements.PRUNE, 0.0, list(states), 500, True, place, archive, False)
            assert row is not None
            world.report.count("jobs pruned", row["jobs"])
            place = row["place"]
            continue
        return


async def open_everything(world: World, connection: Connection) -> None:
    """So that all jobs can end: queues run, though limited, and draining is off."""
    async with world.sessions.doing(connection, "open"):
        for queue in QUEUES:
            await connection.fetchval(statements.PAUSE_QUEUE, queue, False)
            limit = await connection.fetchval("select max_running from reactor.queues where name = $1", queue)
            if limit is not None:
                await _set_limit(world, connection, queue, max(10, limit))
        await connection.fetchval(statements.SET_DRAINING, False)
