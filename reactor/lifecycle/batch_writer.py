"""Gathers what attempts have to write and writes it in batches.

A group commit without a timer: items that arrive while a batch is being written form the next batch, so a lone job is
settled immediately and a thousand share a commit. Nothing is reported before its commit.

One row must not hold up the others. A batch that the database refuses, or that takes too long, is written item by item.
An item whose row is locked by another transaction, or that the database can't write now, is written later. Only what
is wrong with the data itself is refused for good.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import asyncpg

from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify, had_no_effect, is_about_the_data, summary
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.retry import RetryPolicy
from reactor.errors import StatementTimeout
from reactor.log import get_logger

log = get_logger(__name__)
Item = TypeVar("Item")
Answer = TypeVar("Answer")

BATCH = 500
# Another transaction may hold one of the rows: the rest of the batch does not wait for it long.
LOCK_WAIT_MS = 250
LONE_LOCK_WAIT_MS = 50
LOCKED_PAUSE_SECONDS = 0.5

_LOCKED = RetryPolicy(LOCKED_PAUSE_SECONDS, 2.0)
POSTPONED = RetryPolicy(LOCKED_PAUSE_SECONDS, 60.0)
CAUSED_BY_ITEMS = frozenset({Failure.LOCKED, Failure.SLOW})
"""One item may be the cause, and the others can be written without it."""


class BatchWriter(ABC, Generic[Item]):
    """The part that endings, steps and progress have in common. `wake` is called when there is something to write."""

    def __init__(self, connection: ReconnectingConnection, wake: Callable[[], object]) -> None:
        self._connection = connection
        self._wake = wake
        self._postponed: set[asyncio.TimerHandle] = set()
        self._tries: Counter[int] = Counter()
        """How often the items of jobs could not be written, in spite of a database that answers."""

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
    ) -> Failure | None:
        """`send` writes a batch in one commit, its rows locked in the order of their ids; `report` follows the commit.
        Its last argument is whether an earlier try, whose answer was lost, may have been the one that was committed."""
        maybe_done = False

        async def try_once(connection: Connection) -> Answer:
            nonlocal maybe_done
            try:
                return await send(connection, batch)
            except BaseException as error:
                maybe_done = maybe_done or isinstance(error, asyncio.CancelledError) or not had_no_effect(error)
                raise

        try:
            answer, _ = await self._connection.retry(try_once, unless=CAUSED_BY_ITEMS)
        except (asyncpg.PostgresError, StatementTimeout) as error:
            if maybe_done:
                batch = [self._doubted(item) for item in batch]
            if len(batch) > 1:
                await self._commit_one_by_one(batch, send, report)
            else:
                self._handle(batch[0], error)
            return classify(error)
        if self._tries:
            for item in batch:
                self._tries.pop(self._job_id(item), None)
        await report(batch, answer, maybe_done)
        return None

    async def _commit_one_by_one(
        self,
        batch: Sequence[Item],
        send: Callable[[Connection, Sequence[Item]], Awaitable[Answer]],
        report: Callable[[Sequence[Item], Answer, bool], Awaitable[None]],
    ) -> None:
        for number, item in enumerate(batch, 1):
            if await self._commit([item], send, report) is Failure.SLOW:
                # The others may take as long. They are written together, without this one.
                for left in batch[number:]:
                    self._put_back(left)
                return

    def _handle(self, item: Item, error: asyncpg.PostgresError | StatementTimeout) -> None:
        """What could not be written, although the database is there."""
        job_id, failure = self._job_id(item), classify(error)
        self._tries[job_id] += 1
        tries = self._tries[job_id]
        if is_about_the_data(error):
            is_done = self._refuse(item, error)
        else:
            is_done = failure is Failure.SLOW and self._take_slow(item, error, tries)
        if is_done:
            self._tries.pop(job_id)
        else:
            policy = _LOCKED if failure is Failure.LOCKED else POSTPONED
            pause = policy.pause_after(tries)
            level = log.info if failure is Failure.LOCKED else log.warning
            level("write postponed", job_id=job_id, tries=tries, seconds=round(pause, 1), error=summary(error))
            self._postpone(item, pause)

    def _postpone(self, item: Item, seconds: float) -> None:
        def put_back() -> None:
            self._postponed.discard(timer)
            self._put_back(item)
            self._wake()  # also if its caller has gone: a worker that stops waits for the report that all is written

        timer = asyncio.get_running_loop().call_later(seconds, put_back)
        self._postponed.add(timer)

    def _take_slow(self, item: Item, error: asyncpg.PostgresError | StatementTimeout, tries: int) -> bool:
        """Whether there is another way for an item that takes too long; otherwise it is tried again."""
        return False

    def _doubted(self, item: Item) -> Item:
        """The item, when it may have been written although no answer came."""
        return item

    @abstractmethod
    def _refuse(self, item: Item, error: asyncpg.PostgresError) -> bool:
        """The database does not accept this item, now or later. False: there is nothing to do but to try again."""

    @abstractmethod
    def _put_back(self, item: Item) -> None:
        """It is written with the next batch."""

    @abstractmethod
    def _job_id(self, item: Item) -> int: ...


def lock_wait_ms(batch: Sequence[object]) -> int:
    return LOCK_WAIT_MS if len(batch) > 1 else LONE_LOCK_WAIT_MS
