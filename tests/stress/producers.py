"""Producers: single rows, batches and pipelines, in transactions that commit, fail, or are rolled back."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from reactor import Pipeline
from reactor.client.pipeline import Node
from reactor.client.submit import JobOptions, NewJob, submit_many
from reactor.database.connection import Connection
from tests.stress.world import QUEUES, TYPES, World

_INSERT = """
insert into reactor.jobs
    (job_type, queue, priority, scope, exclusive, idempotency_key, run_after, max_attempts, lane)
values ($1, $2, $3, $4, $5, $6, clock_timestamp() + make_interval(secs => $7), $8, $9) returning id
"""
_INSERT_EDGE = "insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)"
_KEYS = 30


class _RolledBack(Exception):
    pass


async def produce(world: World, name: str) -> None:
    """Rows and batches."""
    chance = world.chance(name)
    async with world.sessions.open(name) as connection:
        while await world.turn(name, chance):
            if world.backlog < world.mix.backlog:
                await _insert(world, connection, chance)


async def _insert(world: World, connection: Connection, chance: random.Random) -> None:
    mix = world.mix
    number = chance.randint(1, mix.batch)
    try:
        refusals = [asyncpg.UniqueViolationError]
        async with world.sessions.doing(connection, "insert", refusals=refusals), connection.transaction():
            if mix.has("savepoints", chance):
                await _insert_in_savepoint(world, connection, chance)
            if chance.random() < 0.3:
                await submit_many(connection, [_new_job(world, chance) for _ in range(number)])
            else:
                await connection.executemany(_INSERT, [_columns(world, chance) for _ in range(number)])
            if mix.has("slow commits", chance):
                await asyncio.sleep(chance.uniform(0, 0.1))
            # Last, because it may wait for another transaction that has inserted the same key.
            await _insert_unique(world, connection, chance)
            if mix.has("rollbacks", chance):
                raise _RolledBack
    except _RolledBack:
        world.report.count("insert rolled back")


async def _insert_in_savepoint(world: World, connection: Connection, chance: random.Random) -> None:
    try:
        async with connection.transaction():
            await connection.fetchval(_INSERT, *_columns(world, chance))
            if chance.random() < 0.5:
                raise _RolledBack
    except _RolledBack:
        world.report.count("savepoint rolled back")


async def _insert_unique(world: World, connection: Connection, chance: random.Random) -> None:
    columns = list(_columns(world, chance))
    if world.mix.has("exclusive", chance):
        columns[3:5] = [f"exclusive {chance.randrange(world.mix.scopes)}", True]
    elif world.mix.has("keyed", chance):
        columns[5] = f"key {chance.randrange(_KEYS)}"
    else:
        return
    await connection.fetchval(_INSERT, *columns)


def _columns(world: World, chance: random.Random) -> tuple[Any, ...]:
    job = _new_job(world, chance)
    delay = chance.uniform(0, 0.3) if world.mix.has("delayed", chance) else None
    return job.job_type, job.queue, job.priority, job.scope, False, None, delay, job.max_attempts, job.lane


def _new_job(world: World, chance: random.Random) -> NewJob:
    return NewJob(job_type=job_type(world, chance), **options(world, chance))


def job_type(world: World, chance: random.Random) -> str:
    return chance.choice(TYPES[: world.mix.kinds])


def options(world: World, chance: random.Random) -> JobOptions:
    mix = world.mix
    given: JobOptions = {"queue": chance.choice(QUEUES[: mix.kinds])}
    if mix.has("lanes", chance):
        given["lane"] = lane(world, chance)
    if mix.has("scoped", chance):
        given["scope"] = f"scope {chance.randrange(mix.scopes)}"
    if mix.has("priorities", chance):
        given["priority"] = chance.randint(-2, 2)
    if chance.random() < 0.1:
        given["max_attempts"] = chance.randint(1, 4)
    if mix.has("steps", chance):
        given["steps"] = ["one", "never planned"]
    return given


def lane(world: World, chance: random.Random) -> str:
    """A few have most of the jobs."""
    return f"lane {int(world.mix.lanes * chance.random() ** 3)}"


async def produce_pipelines(world: World, name: str) -> None:
    chance = world.chance(name)
    shapes = {"chains": _chain, "diamonds": _diamond, "fan-ins": _fan_in, "fan-outs": _fan_out}
    async with world.sessions.open(name) as connection:
        while await world.turn(name, chance):
            if world.backlog >= world.mix.backlog:
                continue
            for feature, shape in shapes.items():
                if world.mix.has(feature, chance):
                    pipeline = Pipeline()
                    shape(world, pipeline, chance)
                    async with world.sessions.doing(connection, f"pipeline ({feature})"):
                        await pipeline.submit(connection)
            if world.mix.has("late dependants", chance):
                await _depend_on_others(world, connection, chance)
            if world.mix.has("cycles", chance):
                await _insert_a_cycle(world, connection, chance)


def _job(world: World, pipeline: Pipeline, chance: random.Random, after: list[Node]) -> Node:
    how: dict[str, Any] = {"depends_on" if chance.random() < 0.7 else "after_end_of": after}
    if world.mix.has("delayed", chance):
        how["run_after"] = datetime.now(UTC) + timedelta(seconds=chance.uniform(0, 0.3))
    return pipeline.job(job_type(world, chance), **how, **options(world, chance))


def _chain(world: World, pipeline: Pipeline, chance: random.Random) -> None:
    last = _job(world, pipeline, chance, [])
    for _ in range(chance.randint(1, 8)):
        last = _job(world, pipeline, chance, [last])


def _diamond(world: World, pipeline: Pipeline, chance: random.Random) -> None:
    first = _job(world, pipeline, chance, [])
    _job(world, pipeline, chance, [_job(world, pipeline, chance, [first]) for _ in range(chance.randint(2, 5))])


def _fan_in(world: World, pipeline: Pipeline, chance: random.Random) -> None:
    _job(world, pipeline, chance, [_job(world, pipeline, chance, []) for _ in range(chance.randint(2, 20))])


def _fan_out(world: World, pipeline: Pipeline, chance: random.Random) -> None:
    """Now and then with more dependants than the end of a job handles by itself."""
    first = _job(world, pipeline, chance, [])
    for _ in range(1200 if chance.random() < 0.05 else chance.randint(2, 20)):
        _job(world, pipeline, chance, [first])


async def _depend_on_others(world: World, connection: Connection, chance: random.Random) -> None:
    """A job that waits for jobs of other transactions, in any state: some are running, some end meanwhile."""
    known = list(world.model.unfinished if chance.random() < 0.7 else world.model.jobs)
    others = chance.sample(known, min(len(known), chance.randint(1, 4)))
    # They may have been pruned since.
    refusals = [asyncpg.ForeignKeyViolationError]
    async with world.sessions.doing(connection, "late dependant", refusals=refusals), connection.transaction():
        job_id = await connection.fetchval(_INSERT, *_columns(world, chance))
        edges = [(job_id, other, chance.choice(("completed", "finished"))) for other in others]
        await connection.executemany(_INSERT_EDGE, edges)
        if world.mix.has("slow commits", chance):
            await asyncio.sleep(chance.uniform(0, 0.05))


async def _insert_a_cycle(world: World, connection: Connection, chance: random.Random) -> None:
    """It is refused at commit. What comes right after it must be noticed all the same."""
    async with (
        world.sessions.doing(connection, "cycle", refusals=[asyncpg.CheckViolationError]),
        connection.transaction(),
    ):
        ids = [await connection.fetchval(_INSERT, *_columns(world, chance)) for _ in range(2)]
        await connection.executemany(_INSERT_EDGE, [(ids[0], ids[1], "completed"), (ids[1], ids[0], "completed")])
    if chance.random() < 0.5:
        async with world.sessions.doing(connection, "insert after a cycle"):
            await connection.fetchval(_INSERT, *_columns(world, chance))
