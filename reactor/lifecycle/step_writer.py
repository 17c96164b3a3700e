"""Gathers what becomes of steps and writes it in batches: the settler's way, for the settler to call."""

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

import asyncpg

from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.steps import Record, record_steps
from reactor.log import get_logger

log = get_logger(__name__)

# Somebody's open transaction may have one of the rows: the others don't wait for it long.
LOCK_WAIT_MS = 250
LONE_LOCK_WAIT_MS = 50
_BATCH = 500
_BLOCKED_PAUSE_SECONDS = 0.5

Heard = asyncio.Future[bool]


class Recorder:
    """`on_work` is called when there is something to write."""

    def __init__(self, line: ReconnectingConnection, on_work: Callable[[], object]) -> None:
        self._line = line
        self._on_work = on_work
        self._waiting: dict[tuple[UUID, str], tuple[Record, Heard]] = {}
        self._blocked: set[asyncio.TimerHandle] = set()

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._blocked

    async def record(self, record: Record) -> bool:
        """Returns when it is written. False: the attempt is stale. Raises what the database has against it."""
        heard: Heard = asyncio.get_running_loop().create_future()
        self._put(record, heard)
        return await heard

    def _put(self, record: Record, heard: Heard) -> None:
        key = record.attempt_id, record.name
        before = self._waiting.pop(key, None)
        if before is not None and not before[1].done():
            before[1].cancel()  # whoever said that has gone on without waiting for it
        self._waiting[key] = record, heard
        self._on_work()

    async def write(self) -> None:
        batch = dict(list(self._waiting.items())[:_BATCH])
        for key in batch:
            del self._waiting[key]
        if batch:
            await self._write(list(batch.values()))

    async def _write(self, batch: Sequence[tuple[Record, Heard]]) -> None:
        records = [record for record, _ in batch]
        lock_wait_ms = LOCK_WAIT_MS if len(batch) > 1 else LONE_LOCK_WAIT_MS
        try:
            held, _ = await self._line.retry(
                lambda connection: record_steps(connection, records, lock_wait_ms=lock_wait_ms)
            )
        except asyncpg.PostgresError as error:
            # One of them can't be written. In a batch of its own it stands in nobody's way.
            if len(batch) > 1:
                for one in batch:
                    await self._write([one])
            else:
                self._refused(*batch[0], error)
            return
        for record, heard in batch:
            if not heard.done():
                heard.set_result(record.attempt_id in held)

    def _refused(self, record: Record, heard: Heard, error: asyncpg.PostgresError) -> None:
        if not isinstance(error, asyncpg.LockNotAvailableError):
            if not heard.done():
                heard.set_exception(error)
            return
        log.info("job locked by somebody", job_id=record.job_id)

        def again() -> None:
            self._blocked.discard(timer)
            if not heard.done():
                self._put(record, heard)

        timer = asyncio.get_running_loop().call_later(_BLOCKED_PAUSE_SECONDS * random.uniform(0.5, 1.5), again)
        self._blocked.add(timer)
