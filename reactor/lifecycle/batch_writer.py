"""Gathers what attempts have to write and writes it in batches.

A group commit without a timer: items that arrive while a batch is being written form the next batch, so a lone job is
settled immediately and a thousand share a commit. Nothing is reported before its commit.

One row must not hold up the others. A batch that the database refuses is written item by item, and an item whose row
is locked by another transaction is written later.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import asyncpg

from reactor.database.connection import Connection
from reactor.database.reconnecting import ReconnectingConnection
from reactor.log import get_logger

log = get_logger(__name__)
Item = TypeVar("Item")
Answer = TypeVar("Answer")

BATCH = 500
# Another transaction may hold one of the rows: the rest of the batch does not wait for it long.
LOCK_WAIT_MS = 250
LONE_LOCK_WAIT_MS = 50
LOCKED_PAUSE_SECONDS = 0.5


class BatchWriter(ABC, Generic[Item]):
    """The part that endings, steps and progress have in common. `wake` is called when there is something to write."""

    def __init__(self, connection: ReconnectingConnection, wake: Callable[[], object]) -> None:
        self._connection = connection
        self._wake = wake
        self._postponed: set[asyncio.TimerHandle] = set()

    @property
    @abstractmethod
    def has_work(self) -> bool:
        """Something can be written now."""

    @property
    def is_idle(self) -> bool:
        """Everything is written, including items whose rows were locked."""
        return not self.has_work and not self._postponed

    @abstractmethod
    async def write(self) -> None:
        """Returns when the items that have gathered are written, refused or postponed."""

    async def _commit(
        self,
        batch: Sequence[Item],
        send: Callable[[Connection, Sequence[Item]], Awaitable[Answer]],
        report: Callable[[Sequence[Item], Answer, bool], Awaitable[None]],
    ) -> None:
        """`send` writes a batch in one commit, its rows locked in the order of their ids; `report` follows the commit.
        Its last argument is whether an earlier try, whose answer was lost, may have been the one that was committed."""
        try:
            answer, maybe_done = await self._connection.retry(lambda connection: send(connection, batch))
        except asyncpg.PostgresError as error:
            if len(batch) > 1:
                for item in batch:
                    await self._commit([item], send, report)
            elif isinstance(error, asyncpg.LockNotAvailableError):
                log.info("row locked, write postponed", job_id=self._job_id(batch[0]))
                self._postpone(batch[0])
            else:
                self._refuse(batch[0], error)
            return
        await report(batch, answer, maybe_done)

    def _postpone(self, item: Item) -> None:
        def put_back() -> None:
            self._postponed.discard(timer)
            self._put_back(item)
            self._wake()  # also if its caller has gone: a worker that stops waits for the report that all is written

        pause = LOCKED_PAUSE_SECONDS * random.uniform(0.5, 1.5)
        timer = asyncio.get_running_loop().call_later(pause, put_back)
        self._postponed.add(timer)

    @abstractmethod
    def _refuse(self, item: Item, error: asyncpg.PostgresError) -> None:
        """The database does not accept this item."""

    @abstractmethod
    def _put_back(self, item: Item) -> None:
        """Its row was locked; it is written with the next batch."""

    @abstractmethod
    def _job_id(self, item: Item) -> int: ...


def lock_wait_ms(batch: Sequence[object]) -> int:
    return LOCK_WAIT_MS if len(batch) > 1 else LONE_LOCK_WAIT_MS
