"""Numbers for metrics: the workload, the counters of workers, and the health of the server."""

from asyncpg import Record

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.queries.time_limit import time_limited


async def workload(connection: Connection, *, within_seconds: float) -> list[Record]:
    async with time_limited(connection, within_seconds):
        return await connection.fetch(statements.WORKLOAD)


async def worker_counts(connection: Connection, ended_seconds: float, *, within_seconds: float) -> list[Record]:
    async with time_limited(connection, within_seconds):
        return await connection.fetch(statements.WORKER_COUNTS, ended_seconds)


async def vitals(connection: Connection, *, within_seconds: float) -> list[Record]:
    async with time_limited(connection, within_seconds):
        return await connection.fetch(statements.SERVER_GAUGES)
