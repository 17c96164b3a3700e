"""Writes what becomes of steps, in batches."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.batch_writer import BATCH, BatchWriter, lock_wait_ms
from reactor.lifecycle.steps import Record, record_steps


class _Item(NamedTuple):
    record: Record
    is_held: "asyncio.Future[bool]"


class StepWriter(BatchWriter[_Item]):
    def __init__(self, connection: ReconnectingConnection, wake: Callable[[], object]) -> None:
        super().__init__(connection, wake)
        self._waiting: dict[tuple[UUID, str], _Item] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    async def record(self, record: Record) -> bool:
        """Returns when the record is written. False: the attempt is stale. Raises the database's refusal."""
        item = _Item(record, asyncio.get_running_loop().create_future())
        self._put(item)
        return await item.is_held

    def _put(self, item: _Item) -> None:
        key = item.record.attempt_id, item.record.name
        before = self._waiting.pop(key, None)
        if before is not None and not before.is_held.done():
            before.is_held.cancel()  # its caller went on without waiting for it
        self._waiting[key] = item
        self._wake()

    async def write(self) -> None:
        if batch := [self._waiting.pop(key) for key in list(self._waiting)[:BATCH]]:
            await self._commit(batch, self._send, self._report)

    async def _send(self, connection: Connection, batch: Sequence[_Item]) -> set[UUID]:
        return await record_steps(connection, [item.record for item in batch], lock_wait_ms=lock_wait_ms(batch))

    async def _report(self, batch: Sequence[_Item], held: set[UUID], maybe_done: bool) -> None:
        for record, is_held in batch:
            if not is_held.done():
                is_held.set_result(record.attempt_id in held)

    def _refuse(self, item: _Item, error: asyncpg.PostgresError) -> bool:
        if not item.is_held.done():
            item.is_held.set_exception(error)
        return True

    def _put_back(self, item: _Item) -> None:
        if not item.is_held.done():
            self._put(item)

    def _job_id(self, item: _Item) -> int:
        return item.record.job_id
