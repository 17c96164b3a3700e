"""Repairs rows that came from another server, after a restore from a dump."""

from reactor.database import statements
from reactor.database.connection import connect
from reactor.log import get_logger

log = get_logger(__name__)

_BATCH = 10_000


async def repair_restored_rows(url: str) -> int:
    """In batches, each in a transaction of its own. Returns the number of jobs and steps repaired."""
    total = 0
    async with connect(url, name="reactor migrate", prepares=False) as connection:
        await connection.execute("set role reactor_owner")
        while moved := await connection.fetchval(statements.REPAIR_RESTORED, _BATCH):
            total += moved
    if total:
        log.info("rows from another server repaired", rows=total)
    return total
