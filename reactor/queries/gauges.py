"""The state of the engine in numbers: what there is to do, what workers have done, how the server fares."""

from asyncpg import Record

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.queries.time_limit import limited


async def workload(connection: Connection, *, within_seconds: float) -> list[Record]:
    async with limited(connection, within_seconds):
        return await connection.fetch(statements.WORKLOAD)


async def worker_counts(connection: Connection, ended_seconds: float, *, within_seconds: float) -> list[Record]:
    async with limited(connection, within_seconds):
        return await connection.fetch(statements.WORKER_COUNTS, ended_seconds)


async def vitals(connection: Connection, *, within_seconds: float) -> list[Record]:
    async with limited(connection, within_seconds):
        return await connection.fetch(statements.VITALS)
