"""What becomes due by itself: scheduled jobs that are to be made ready, and schedules that are to insert theirs."""

import asyncio

import asyncpg

from reactor.database import statements
from reactor.database.reconnecting import ReconnectingConnection
from reactor.log import get_logger
from reactor.schedules.run_due import tick

log = get_logger(__name__)

NEVER = float("inf")
_PROMOTION_BATCH = 1000
_PROMOTION_PAUSE_SECONDS = 0.1
_TICK_AGAIN_SECONDS = 5.0


class Calendar:
    """Knows when to ask the database next, by the event loop's clock. What is heard while it asks moves that up."""

    def __init__(self, line: ReconnectingConnection, *, longest_pause: float, has_schedules: bool) -> None:
        self.next_promotion = 0.0
        self.next_tick = 0.0 if has_schedules else NEVER
        self._line = line
        self._longest_pause = longest_pause
        self._promoted_at = 0.0

    def on_bell(self) -> None:
        """Perhaps it is a scheduled job; but not every ring is worth a look."""
        self.next_promotion = min(self.next_promotion, self._promoted_at + _PROMOTION_PAUSE_SECONDS)

    def promote_now(self) -> None:
        self.next_promotion = 0.0

    def tick_now(self) -> None:
        self.next_tick = 0.0

    async def promote(self) -> int:
        """Scheduled jobs that are due become ready. Tells how many."""
        loop = asyncio.get_running_loop()
        if loop.time() < self.next_promotion:
            return 0
        self.next_promotion = NEVER  # what rings while we ask stays rung
        record, _ = await self._line.retry(lambda connection: connection.fetchrow(statements.PROMOTE, _PROMOTION_BATCH))
        assert record is not None
        moved, later = record
        now = self._promoted_at = loop.time()
        if moved == _PROMOTION_BATCH:
            self.next_promotion = now
        elif later is not None:
            self.next_promotion = min(self.next_promotion, now + later)
        return int(moved)

    async def tick(self) -> None:
        """Schedules that are due insert their jobs."""
        self.next_tick = NEVER  # what rings while we ask stays rung
        try:
            pause, _ = await self._line.retry(tick)
        except asyncpg.PostgresError as error:
            # Claims go on all the same.
            log.error("schedules can't be run", error=str(error), sqlstate=error.sqlstate)
            pause = _TICK_AGAIN_SECONDS
        self.next_tick = min(self.next_tick, asyncio.get_running_loop().time() + min(pause, self._longest_pause))
