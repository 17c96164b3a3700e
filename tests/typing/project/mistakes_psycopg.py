"""The mistakes of mistakes.py that depend on the driver, with psycopg."""

import psycopg

import reactor
from reactor import Pipeline


async def forgotten_await(connection: psycopg.AsyncConnection) -> None:
    reactor.submit(connection, "csv.ingest")  # mistake
    reactor.submit_many(connection, [])  # mistake
    Pipeline().submit(connection)  # mistake
    print(reactor.submit(connection, "csv.ingest").id)  # mistake


async def needless_await(connection: psycopg.Connection) -> None:
    await reactor.submit(connection, "csv.ingest")  # mistake
    await reactor.submit_many(connection, [])  # mistake


async def options(connection: psycopg.Connection, async_connection: psycopg.AsyncConnection) -> None:
    reactor.submit(connection, "csv.ingest", prioritty=3)  # mistake
    await reactor.submit(async_connection, "csv.ingest", priority="high")  # mistake
    print(reactor.submit(connection, "csv.ingest").job_id)  # mistake
