"""Releases the jobs of dead pods and continues large ends, on every pod, without a leader."""

import asyncio
import random

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.log import get_logger

log = get_logger(__name__)

_BATCH = 500
_DEPENDANTS = 1000
_SHORTEST_PAUSE_SECONDS = 0.5
_HOUSEKEEPING_SECONDS = 60.0
_OLD_CLAIMS = 10_000
_FORGET_WORKERS_AFTER_SECONDS = 7 * 86400.0
_FORGET_JOB_TYPES_AFTER_SECONDS = 30 * 86400.0
_JUST_AFTER_SECONDS = 0.05


async def sweep(connection: Connection) -> int:
    """Releases the jobs of all dead workers. Returns how many."""
    swept = 0
    while True:
        records = await connection.fetch(statements.SWEEP, _BATCH)
        swept += len(records)
        for record in records:
            log.warning("job of a dead pod released", job_id=record["id"], state=record["state"])
        if len(records) < _BATCH:
            return swept


async def resolve_more(connection: Connection) -> float | None:
    """Releases or cancels the dependants that are left of large ends, in short transactions. Returns the seconds after
    which there is more to do: other transactions hold the rest. None: nothing is left."""
    pause: float | None = 0.0
    while pause == 0:
        pause = await connection.fetchval(statements.RESOLVE_MORE, _DEPENDANTS)
    return pause


async def keep_sweeping(url: str, pod: str, longest_pause_seconds: float) -> None:
    """Until it is cancelled. Wakes when the next lease expires, so that a dead pod's jobs wait no longer than that."""
    connection = ReconnectingConnection(url, f"reactor sweep {pod}")
    next_housekeeping = 0.0
    loop = asyncio.get_running_loop()
    try:
        while True:
            pause = longest_pause_seconds
            try:
                await connection.retry(sweep)
                unresolved, _ = await connection.retry(resolve_more)
                if loop.time() >= next_housekeeping:
                    next_housekeeping = loop.time() + _HOUSEKEEPING_SECONDS * random.uniform(0.8, 1.2)
                    await connection.retry(_keep_house)
                lease, _ = await connection.retry(lambda c: c.fetchval(statements.NEXT_LEASE))
                if lease is not None:
                    pause = min(pause, max(lease, 0.0) + _JUST_AFTER_SECONDS)
                if unresolved is not None:
                    pause = min(pause, max(unresolved, _SHORTEST_PAUSE_SECONDS))
            except asyncpg.PostgresError as error:
                log.error("sweep failed", error=str(error), sqlstate=error.sqlstate)
            await asyncio.sleep(pause)
    finally:
        await connection.close()


async def _keep_house(connection: Connection) -> None:
    """Repairs what should not happen; each find is a bug, or a manual change of the tables."""
    for record in await connection.fetch(statements.UNPARK_SCOPES):
        log.warning("scopes were parked behind nothing", scopes=record["scopes"])
    stuck = [record["id"] for record in await connection.fetch(statements.REPAIR_WAITING, _BATCH)]
    if stuck:
        log.error("jobs waited for nothing", jobs=stuck)
    repaired = await connection.fetchrow(statements.REPAIR_LINES)
    if repaired and any(repaired):
        log.error("lanes or limits were repaired", lines=repaired["announced"], places=repaired["freed"])
    await connection.execute(statements.FORGET_CLAIMS, _OLD_CLAIMS)
    await connection.execute(statements.DELETE_ENDED_WORKERS, _FORGET_WORKERS_AFTER_SECONDS)
    await connection.execute(statements.SEE_JOB_TYPES, _FORGET_JOB_TYPES_AFTER_SECONDS)
