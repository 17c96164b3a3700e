"""Renews the leases of this pod's workers, and reports those that it can't renew."""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from reactor.concurrency import first_of
from reactor.database.failures import Failure, classify, summary
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.retry import Backoff, RetryPolicy
from reactor.lifecycle.lease import heartbeat
from reactor.log import get_logger

log = get_logger(__name__)


class Heartbeat:
    """Runs outside of the processes or threads that run handlers, so that no handler can silence it.

    A pod that can't reach the database for two thirds of a lease gives up its workers: none of their jobs runs here any
    more by the time that other pods take them. It goes on renewing their leases until their jobs are released: after an
    outage that all pods had, no other pod has taken the jobs, and they are not charged.
    """

    def __init__(
        self,
        url: str,
        pod: str,
        lease_seconds: float,
        heartbeat_seconds: float,
        on_lost: Callable[[UUID], None],
        counts: Callable[[UUID], str | None],
        on_renewed: Callable[[UUID, float], None] = lambda worker_id, sent_at: None,
    ) -> None:
        """`counts`: what a worker has done so far, as JSON, to be stored with its lease.

        `on_renewed`: called with the monotonic time from which the lease runs.
        """
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._on_lost = on_lost
        self._counts = counts
        self._on_renewed = on_renewed
        self._stored: dict[UUID, str | None] = {}
        self._connection = ReconnectingConnection(
            url, f"reactor heartbeat {pod}", statement_seconds=min(heartbeat_seconds, lease_seconds / 6)
        )
        self._renewed: dict[UUID, float] = {}
        self._given_up: set[UUID] = set()
        self._due = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        longest_seconds = min(1.0, heartbeat_seconds / 4)
        self._backoff = Backoff(RetryPolicy(min(0.1, longest_seconds), longest_seconds))

    def add(self, worker_id: UUID) -> None:
        """A worker that was registered just now. Its first heartbeat follows at once: starting it took time.

        May be called in another thread than `run`.
        """
        self._renewed[worker_id] = time.monotonic()
        self.renew_now()

    def renew_now(self) -> None:
        """Does not wait for the next heartbeat's time, e.g. to store counts that matter. In any thread, too."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._due.set)

    def remove(self, worker_id: UUID) -> None:
        """A worker that holds nothing any more."""
        self._renewed.pop(worker_id, None)
        self._stored.pop(worker_id, None)
        self._given_up.discard(worker_id)

    @property
    def is_well(self) -> bool:
        """There are workers, and all of their leases are being renewed."""
        now = time.monotonic()
        return bool(self._renewed) and all(
            now - renewed < self._lease_seconds / 2 for renewed in self._renewed.values()
        )

    @property
    def round_trip_seconds(self) -> float:
        """To the database; 0: not known yet."""
        return self._connection.round_trip_seconds

    def has_given_up(self, worker_id: UUID) -> bool:
        """Its lease could not be renewed in time."""
        self._give_up_overdue_leases()
        return worker_id in self._given_up

    async def open(self) -> None:
        """Connects before there are handlers, which may take all connections that the server has."""
        await self._connection.open()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                self._due.clear()
                self._give_up_overdue_leases()
                renewed = await self._renew_leases()
                self._give_up_overdue_leases()
                if renewed:
                    self._backoff.reset()
                    await first_of(self._due.wait(), asyncio.sleep(self._heartbeat_seconds))
                else:
                    await self._backoff.pause()
        finally:
            self._loop = None
            await self._connection.close()

    async def _renew_leases(self) -> bool:
        for worker_id in list(self._renewed):
            # From before the statement: the lease runs from when the server received it.
            sent_at = time.monotonic()
            counts = self._counts(worker_id)
            news = counts if counts != self._stored.get(worker_id) else None
            try:
                is_alive = await self._connection.once(
                    lambda connection: heartbeat(connection, worker_id, self._lease_seconds, news)  # noqa: B023
                )
            except Exception as error:
                if classify(error) is Failure.BUG:
                    # Not raised: without this task the leases would expire unnoticed. They are given up when overdue.
                    log.exception("internal error in the heartbeat")
                else:
                    log.warning("heartbeat failed", error=summary(error))
                return False
            if worker_id not in self._renewed:
                continue
            if is_alive:
                self._renewed[worker_id] = sent_at
                self._stored[worker_id] = counts
                self._on_renewed(worker_id, sent_at)
            else:
                self._lose(worker_id, "the database considers the worker dead")
                self.remove(worker_id)
        return True

    def _give_up_overdue_leases(self) -> None:
        limit = time.monotonic() - self._lease_seconds * 2 / 3
        for worker_id, renewed in list(self._renewed.items()):
            if renewed < limit:
                self._lose(worker_id, "no heartbeat reached the database")

    def _lose(self, worker_id: UUID, why: str) -> None:
        if worker_id not in self._given_up:
            self._given_up.add(worker_id)
            log.error("lease lost", worker_id=str(worker_id), why=why)
            self._on_lost(worker_id)
