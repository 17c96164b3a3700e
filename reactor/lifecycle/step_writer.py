"""Writes what becomes of steps, in batches, with the progress of their jobs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

import asyncpg

from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.batch_writer import BATCH, BatchWriter, lock_wait_ms
from reactor.lifecycle.steps import Progress, Record, record_steps

UNREPORTED_SECONDS = 0.05
"""A step that ends sooner is written once, with its end."""

Key: TypeAlias = tuple[UUID, str]


class _Item(NamedTuple):
    record: Record
    progress: Callable[[], Progress]
    """Asked for when the record is sent, so that a record that is sent late does not undo newer progress."""
    is_held: "asyncio.Future[bool]"

    @property
    def key(self) -> Key:
        return self.record.attempt_id, self.record.name


class StepWriter(BatchWriter[_Item]):
    def __init__(self, connection: ReconnectingConnection, wake: Callable[[], object]) -> None:
        super().__init__(connection, wake)
        self.on_stale: Callable[[UUID], None] = lambda attempt_id: None
        """Called when the start of a step shows that its attempt is stale."""
        self._waiting: dict[Key, _Item] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        """Of steps whose start is to be written if they still run then."""
        self._starts: dict[Key, asyncio.Future[bool]] = {}
        """Starts that are being written."""

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def start(self, record: Record, progress: Callable[[], Progress]) -> None:
        """Writes the start of a step, unless the step ends within a moment. Nothing waits for it."""
        item = _Item(record, progress, asyncio.get_running_loop().create_future())
        self._timers[item.key] = asyncio.get_running_loop().call_later(UNREPORTED_SECONDS, self._put_start, item)

    def _put_start(self, item: _Item) -> None:
        del self._timers[item.key]
        self._starts[item.key] = item.is_held
        item.is_held.add_done_callback(lambda is_held: self._on_started(item, is_held))
        self._put(item)

    def _on_started(self, item: _Item, is_held: "asyncio.Future[bool]") -> None:
        del self._starts[item.key]
        if not is_held.cancelled() and is_held.exception() is None and not is_held.result():
            self.on_stale(item.record.attempt_id)

    async def record(self, record: Record, progress: Callable[[], Progress] = Progress) -> bool:
        """Returns when the record is written. False: the attempt is stale. Raises the database's refusal."""
        item = _Item(record, progress, asyncio.get_running_loop().create_future())
        if timer := self._timers.pop(item.key, None):
            timer.cancel()
        elif (start := self._starts.get(item.key)) and item.key not in self._waiting:
            await asyncio.wait([start])  # it is on its way, and must not arrive after this record
        self._put(item)
        return await item.is_held

    def _put(self, item: _Item) -> None:
        before = self._waiting.pop(item.key, None)
        if before is not None and not before.is_held.done():
            before.is_held.cancel()  # its caller went on without waiting for it
        self._waiting[item.key] = item
        self._wake()

    async def write(self) -> None:
        if batch := [self._waiting.pop(key) for key in list(self._waiting)[:BATCH]]:
            await self._commit(batch, self._send, self._report)

    async def _send(self, connection: Connection, batch: Sequence[_Item]) -> set[UUID]:
        progress = {item.record.attempt_id: item.progress() for item in batch}
        reported = {attempt_id: each for attempt_id, each in progress.items() if any(part is not None for part in each)}
        records = [item.record for item in batch]
        return await record_steps(connection, records, reported, lock_wait_ms=lock_wait_ms(batch))

    async def _report(self, batch: Sequence[_Item], held: set[UUID], maybe_done: bool) -> None:
        for item in batch:
            if not item.is_held.done():
                item.is_held.set_result(item.record.attempt_id in held)

    def _refuse(self, item: _Item, error: asyncpg.PostgresError) -> bool:
        if not item.is_held.done():
            item.is_held.set_exception(error)
        return True

    def _put_back(self, item: _Item) -> None:
        if not item.is_held.done():
            self._put(item)

    def _job_id(self, item: _Item) -> int:
        return item.record.job_id
