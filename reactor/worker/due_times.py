"""Work that becomes due at a time: scheduled jobs become ready, and schedules insert their jobs."""

import asyncio

import asyncpg

from reactor.database import statements
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import NEVER, Reason, Timings, Wakeups
from reactor.log import get_logger
from reactor.schedules.run_due import run_due

log = get_logger(__name__)

_PROMOTION_BATCH = 1000
_PROMOTION_PAUSE_SECONDS = 0.1
_REFUSED_PAUSE_SECONDS = 5.0


class ScheduledJobs:
    """Makes jobs ready whose `run_after` has passed."""

    def __init__(self, connection: ReconnectingConnection) -> None:
        self.next_at = 0.0
        """When to ask the database next, by the event loop's clock."""
        self._connection = connection
        self._promoted_at = 0.0

    def notify(self) -> None:
        """A new job may be a scheduled one; but not every notification is worth a statement."""
        self.next_at = min(self.next_at, self._promoted_at + _PROMOTION_PAUSE_SECONDS)

    def check_now(self) -> None:
        self.next_at = 0.0

    async def promote(self) -> int:
        """Makes due jobs ready, if it is time. Returns how many."""
        loop = asyncio.get_running_loop()
        if loop.time() < self.next_at:
            return 0
        self.next_at = NEVER  # before the statement: a notification during it brings this forward
        record, _ = await self._connection.retry(
            lambda connection: connection.fetchrow(statements.PROMOTE_DUE, _PROMOTION_BATCH)
        )
        assert record is not None
        promoted, seconds_to_next = record
        now = self._promoted_at = loop.time()
        if promoted == _PROMOTION_BATCH:
            self.next_at = now
        elif seconds_to_next is not None:
            self.next_at = min(self.next_at, now + seconds_to_next)
        return int(promoted)


class Schedules:
    """Inserts the jobs of recurring schedules when they are due."""

    def __init__(self, connection: ReconnectingConnection, longest_pause: float) -> None:
        self._connection = connection
        self._longest_pause = longest_pause
        self._next_at = 0.0
        self._wakeups = Wakeups(Timings(), due_at=lambda: self._next_at)

    def notify(self) -> None:
        """A schedule was changed."""
        self._wakeups.notify()

    def stop(self) -> None:
        self._wakeups.stop()

    async def run(self) -> None:
        """Until it is stopped or cancelled."""
        while Reason.STOPPED not in await self._wakeups.next():
            try:
                pause, _ = await self._connection.retry(run_due)
            except asyncpg.PostgresError as error:
                log.error("schedules failed", error=str(error), sqlstate=error.sqlstate)
                pause = _REFUSED_PAUSE_SECONDS
            self._next_at = asyncio.get_running_loop().time() + min(pause, self._longest_pause)
