"""Puts rows right that came from another server: after a restore from a dump."""

from reactor.database import statements
from reactor.database.connection import connect
from reactor.log import get_logger

log = get_logger(__name__)

_BATCH = 10_000


async def put_right(url: str) -> int:
    """In batches, each in a transaction of its own. Returns how many jobs and steps it was."""
    total = 0
    async with connect(url, name="reactor migrate", prepares=False) as connection:
        await connection.execute("set role reactor_owner")
        while moved := await connection.fetchval(statements.RESTORED, _BATCH):
            total += moved
    if total:
        log.info("rows from another server put right", rows=total)
    return total
