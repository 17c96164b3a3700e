"""Keeps the leases of this pod's workers, and says so when one can't be kept."""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from reactor.database.failures import Failure, classify, summary
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.lease import heartbeat
from reactor.log import get_logger

log = get_logger(__name__)


class Keeper:
    """Lives outside of the processes or threads that run handlers, so that nothing they do can silence it.

    A pod that can't reach the database for two thirds of a lease gives its workers up by itself: by the time that
    others take their jobs, none of them runs here any more.
    """

    def __init__(
        self,
        url: str,
        pod: str,
        lease_seconds: float,
        heartbeat_seconds: float,
        on_lost: Callable[[UUID], None],
        counts: Callable[[UUID], str | None],
    ) -> None:
        """`counts`: what a worker has done so far, as JSON, to be stored with its lease."""
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._on_lost = on_lost
        self._counts = counts
        self._stored: dict[UUID, str | None] = {}
        self._line = ReconnectingConnection(
            url, f"reactor heartbeat {pod}", statement_seconds=min(heartbeat_seconds, lease_seconds / 6)
        )
        self._renewed: dict[UUID, float] = {}

    def watch(self, worker_id: UUID) -> None:
        """From a moment at which its lease was renewed."""
        self._renewed[worker_id] = time.monotonic()

    def leave(self, worker_id: UUID) -> None:
        self._renewed.pop(worker_id, None)
        self._stored.pop(worker_id, None)

    @property
    def is_well(self) -> bool:
        """There are workers, and the leases of all of them are being kept."""
        now = time.monotonic()
        return bool(self._renewed) and all(
            now - renewed < self._lease_seconds / 2 for renewed in self._renewed.values()
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self._give_up_the_overdue()
                well = await self._beat()
                self._give_up_the_overdue()
                await asyncio.sleep(self._heartbeat_seconds if well else min(1.0, self._heartbeat_seconds / 4))
        finally:
            await self._line.close()

    async def _beat(self) -> bool:
        for worker_id in list(self._renewed):
            # Counted from before the question: the lease runs from when the server heard it.
            asked = time.monotonic()
            counts = self._counts(worker_id)
            news = counts if counts != self._stored.get(worker_id) else None
            try:
                alive = await self._line.once(
                    lambda connection: heartbeat(connection, worker_id, self._lease_seconds, news)  # noqa: B023
                )
            except Exception as error:
                if classify(error) is Failure.BUG:
                    # Not raised: without this task the lease would end unnoticed. It is given up when it is overdue.
                    log.exception("internal error in the heartbeat")
                else:
                    log.warning("heartbeat failed", error=summary(error))
                return False
            if worker_id not in self._renewed:
                continue
            if alive:
                self._renewed[worker_id] = asked
                self._stored[worker_id] = counts
            else:
                self._lose(worker_id, "the database took it for dead")
        return True

    def _give_up_the_overdue(self) -> None:
        limit = time.monotonic() - self._lease_seconds * 2 / 3
        for worker_id, renewed in list(self._renewed.items()):
            if renewed < limit:
                self._lose(worker_id, "no heartbeat got through")

    def _lose(self, worker_id: UUID, why: str) -> None:
        log.error("lease lost", worker_id=str(worker_id), why=why)
        self.leave(worker_id)
        self._on_lost(worker_id)
