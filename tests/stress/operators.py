"""Operators, and the pods' repairs: each action is a function of a connection."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from tests.stress.limits import UNKNOWN_RATE, Key, Values
from tests.stress.model import TERMINAL
from tests.stress.producers import lane
from tests.stress.world import QUEUES, TYPES, World

_MOST = 10
_MOST_AT_REST = 100
_LIMITS = "select queue, job_type, lane, max_running, rate from reactor.limits"

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
    """By the column of reactor.queues."""
    queue, max_running = chance.choice(QUEUES), chance.choice((None, 0, 1, 3, 10, 30))
    values = Values(max_running, rate=UNKNOWN_RATE)
    async with world.sessions.doing(connection, "limit a queue"), world.limits.changing(Key(queue, "", ""), values):
        await connection.fetchval(statements.LIMIT_QUEUE, queue, max_running)


async def _limits(world: World, connection: Connection, chance: random.Random) -> None:
    if chance.random() < world.mix.limit_changes:
        key = _limit_key(world, chance)
        if chance.random() < 0.3:
            await _remove_limit(world, connection, key)
        else:
            await _set_limit(world, connection, key, _limit_values(world, chance))


def _limit_key(world: World, chance: random.Random) -> Key:
    queue, job_type = chance.choice(QUEUES[: world.mix.kinds]), chance.choice(TYPES[: world.mix.kinds])
    queue, job_type = chance.choice(((queue, ""), ("", job_type), (queue, job_type)))
    shape = "" if world.mix.weights["lanes"] == 0 else chance.choice(("", "*", "*", lane(world, chance)))
    return Key(queue, job_type, shape)


def _limit_values(world: World, chance: random.Random) -> Values:
    most = chance.choice((None, 0, 1, 1, 2, 5, 20))
    if not world.mix.has("rates", chance):
        return Values(most)
    most = most if chance.random() < 0.3 else None
    rate, period_seconds = chance.choice(((5, 1.0), (50, 1.0), (200, 1.0), (3, 0.1), (2, 3600.0)))
    return Values(most, rate, period_seconds, chance.choice((None, 1, 3, 20)))


async def _set_limit(world: World, connection: Connection, key: Key, values: Values) -> None:
    async with world.sessions.doing(connection, "set a limit"), world.limits.changing(key, values):
        await connection.fetchval(statements.SET_LIMIT, *key, *astuple(values))


async def _remove_limit(world: World, connection: Connection, key: Key) -> None:
    async with world.sessions.doing(connection, "remove a limit"), world.limits.changing(key, None):
        await connection.fetchval(statements.REMOVE_LIMIT, *key)


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
    async with world.sessions.doing(connection, "repair lines"):
        repaired = await connection.fetchrow(statements.REPAIR_LINES)
        assert repaired is not None
        if repaired["announced"] or repaired["freed"]:
            world.report.violation("lines or places were repaired", str(dict(repaired)))


ACTIONS: dict[str, Action] = {
    "cancel": _cancel,
    "retry": _retry,
    "recover": _recover,
    "pause": _pause,
    "limit": _limit,
    "limits": _limits,
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


async def thin_out(world: World, connection: Connection, chance: random.Random) -> None:
    """Cancels what would take long to run, if all jobs have the same scope, for example. Not those with dependencies:
    the end of several of them locks these by itself, and not in the order of the ids."""
    jobs, unfinished = world.model.jobs, sorted(world.model.unfinished - world.model.held)
    chance.shuffle(unfinished)
    surplus = [one for one in unfinished[_MOST_AT_REST:] if not jobs[one].needs and not jobs[one].dependants]
    while surplus and not world.is_over:
        async with world.sessions.doing(connection, "thin out"):
            await connection.fetch(statements.CANCEL, sorted(surplus[:100]), "the stress comes to rest")
            surplus = surplus[100:]


async def open_everything(world: World, connection: Connection, chance: random.Random) -> None:
    """So that all jobs can end: queues run, though limited, and draining is off. Some rates are so low that jobs wait
    for them longer than workers look again after the last notification."""
    async with world.sessions.doing(connection, "open"):
        for queue in QUEUES:
            await connection.fetchval(statements.PAUSE_QUEUE, queue, False)
        for *key, max_running, rate in await connection.fetch(_LIMITS):
            if chance.random() < 0.5:
                await _remove_limit(world, connection, Key(*key))
            else:
                most = None if max_running is None else max(10, max_running)
                await _set_limit(
                    world, connection, Key(*key), Values(most, None if rate is None else chance.choice((20, 500)))
                )
        await connection.fetchval(statements.SET_DRAINING, False)
