"""Reconciles this worker's claims: stops what the database took away, releases what it holds for us unknown to us."""

import asyncio
from dataclasses import dataclass

import asyncpg

from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import Timings, Wakeups
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.release import held, release_unstarted
from reactor.log import get_logger
from reactor.worker.slots import Slots

log = get_logger(__name__)

_REFUSED_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Claims:
    """What a worker claims through, and the lock of all that claims for it."""

    connection: ReconnectingConnection
    lock: asyncio.Lock
    """Held from before a claim is sent until its jobs are in the slots, and while the two accounts are compared.
    Otherwise a claim that the database has and the slots don't have yet would be taken for a lost one."""


class Reconciliation:
    """Runs every `seconds`, when a job of ours was cancelled, and when the answer to a claim was lost."""

    def __init__(self, claims: Claims, worker: Worker, slots: Slots, seconds: float) -> None:
        self._claims = claims
        self._worker = worker
        self._slots = slots
        self._wakeups = Wakeups(Timings(poll_seconds=seconds))

    def notify(self) -> None:
        self._wakeups.notify()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wakeups.next()
            try:
                await self.reconcile()
            except asyncpg.PostgresError as error:
                log.error("reconciliation failed", error=str(error), sqlstate=error.sqlstate)
                self.notify()
                await asyncio.sleep(_REFUSED_PAUSE_SECONDS)

    async def reconcile(self) -> None:
        connection = self._claims.connection
        async with self._claims.lock:
            known = set(self._slots.held)
            stored, _ = await connection.retry(lambda c: held(c, self._worker.id))
        unknown = {job_id: attempt_id for job_id, attempt_id in stored.items() if attempt_id not in known}
        if unknown:
            log.warning("unacknowledged claims released", jobs=sorted(unknown))
            await connection.retry(lambda c: release_unstarted(c, unknown))
        self._slots.lose(known.difference(stored.values()))
