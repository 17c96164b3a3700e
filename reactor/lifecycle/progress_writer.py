"""Writes the progress of jobs, and facts about them, in batches."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import encode
from reactor.database.reconnecting import ReconnectingConnection
from reactor.lifecycle.batch_writer import BatchWriter, lock_wait_ms

IsHeld = asyncio.Future[bool]
"""Whether the attempt still holds its job."""


class _Item(NamedTuple):
    job_id: int
    attempt_id: UUID
    fraction: float | None
    message: str | None
    is_held: IsHeld
    meta: Mapping[str, Any] | None = None
    starts_once: bool = False


class ProgressWriter(BatchWriter[_Item]):
    def __init__(self, connection: ReconnectingConnection, wake: Callable[[], object]) -> None:
        super().__init__(connection, wake)
        self._waiting: dict[UUID, _Item] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    async def report(
        self,
        job_id: int,
        attempt_id: UUID,
        fraction: float | None = None,
        message: str | None = None,
        meta: Mapping[str, Any] | None = None,
        *,
        starts_once: bool = False,
    ) -> bool:
        """Returns when it is written. False: the attempt is stale; a report without content asks just that.

        `starts_once`: the handler is about to start, and must not start again.
        """
        return await asyncio.shield(self.put(job_id, attempt_id, fraction, message, meta, starts_once))

    def put(
        self,
        job_id: int,
        attempt_id: UUID,
        fraction: float | None,
        message: str | None,
        meta: Mapping[str, Any] | None = None,
        starts_once: bool = False,
    ) -> IsHeld:
        """The same for a caller that does not wait."""
        is_held: IsHeld = asyncio.get_running_loop().create_future()
        after = _Item(job_id, attempt_id, fraction, message, is_held, meta, starts_once)
        before = self._waiting.pop(attempt_id, None)
        self._waiting[attempt_id] = after if before is None else _merged(before, after)
        self._wake()
        return is_held

    async def write(self) -> None:
        """All of it, however much: an attempt's last progress belongs before its end."""
        waiting, self._waiting = self._waiting, {}
        if waiting:
            in_lock_order = sorted(waiting.values(), key=self._job_id)
            await self._commit(in_lock_order, self._send, self._report)

    async def _send(self, connection: Connection, batch: Sequence[_Item]) -> set[UUID]:
        columns = [
            [item.job_id for item in batch],
            [item.attempt_id for item in batch],
            [item.fraction for item in batch],
            [item.message for item in batch],
            lock_wait_ms(batch),
        ]
        if any(item.meta or item.starts_once for item in batch):
            facts = [None if item.meta is None else encode(item.meta) for item in batch]
            starts_once = [item.starts_once for item in batch]
            records = await connection.fetch(statements.REPORT_FACTS, *columns, facts, starts_once)
        else:
            records = await connection.fetch(statements.REPORT_PROGRESS, *columns)
        return {record[0] for record in records}

    async def _report(self, batch: Sequence[_Item], held: set[UUID], maybe_done: bool) -> None:
        for item in batch:
            if not item.is_held.done():
                item.is_held.set_result(item.attempt_id in held)

    def _refuse(self, item: _Item, error: asyncpg.PostgresError) -> bool:
        if not item.is_held.done():
            item.is_held.set_exception(error)
        return True

    def _put_back(self, item: _Item) -> None:
        after = self._waiting.pop(item.attempt_id, None)
        self._waiting[item.attempt_id] = item if after is None else _merged(item, after)
        self._wake()

    def _job_id(self, item: _Item) -> int:
        return item.job_id


def _merged(before: _Item, after: _Item) -> _Item:
    """One row, one write: the newer report counts, and its answer is also the older one's."""
    after.is_held.add_done_callback(partial(_pass_on, before.is_held))
    return after._replace(
        fraction=before.fraction if after.fraction is None else after.fraction,
        message=before.message if after.message is None else after.message,
        meta={**before.meta, **(after.meta or {})} if before.meta else after.meta,
        starts_once=before.starts_once or after.starts_once,
    )


def _pass_on(waiting: IsHeld, done: IsHeld) -> None:
    if waiting.done() or done.cancelled():
        return
    if (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())


async def find_meta(connection: Connection, job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await connection.fetchval(statements.FIND_META, job_id))
    return found
