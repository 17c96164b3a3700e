"""Writes how attempts ended, in batches."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from uuid import UUID

import asyncpg

from reactor.counts import Histogram
from reactor.database.connection import Connection
from reactor.database.failures import classify, summary
from reactor.database.jsonb import ascii_only
from reactor.database.reconnecting import ReconnectingConnection
from reactor.errors import StatementTimeout
from reactor.job import JobState
from reactor.lifecycle.batch_writer import BATCH, CAUSED_BY_ITEMS, BatchWriter
from reactor.lifecycle.log_writer import LINES_AT_ONCE
from reactor.lifecycle.settle import close_logs, settle, settled
from reactor.log import get_logger
from reactor.outcome import Ending, Failed, Outcome

log = get_logger(__name__)

_LOCK_WAIT_MS = 1000

OnSettled = Callable[[int, UUID, JobState | None, Outcome], None]
"""Called for every ending, with the ids of its job and attempt, the job's new state (None: the attempt was stale), and
the outcome."""


LARGE_SECONDS = 600.0
"""100,000 children, on a busy server."""
_LARGE_TRIES = 3
_LARGE_COUNT = 1000
_LARGE_SIZE = 1_000_000
_LACKS_CHARACTER = (asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError)


def is_large(ending: Ending) -> bool:
    """It has many children, or large ones."""
    return ending.children is not None and (len(ending.children) > _LARGE_COUNT or ending.children.size > _LARGE_SIZE)


def _escaped(ending: Ending) -> Ending:
    """An error must not fail its job for a character in its text."""
    outcome = ending.outcome
    texts = {f.name: ascii_only(getattr(outcome, f.name)) for f in fields(outcome)}
    return ending._replace(outcome=replace(outcome, **texts))


class EndingWriter(BatchWriter[Ending]):
    """`sizes` counts how many endings shared each commit. `put_large` takes endings that would keep others waiting;
    None: this is the writer that takes them, one at a time."""

    def __init__(
        self,
        connection: ReconnectingConnection,
        wake: Callable[[], object],
        on_settled: OnSettled,
        sizes: Histogram,
        put_large: Callable[[Ending], None] | None = None,
    ) -> None:
        super().__init__(connection, wake)
        self._on_settled = on_settled
        self._sizes = sizes
        self._put_large = put_large
        self._waiting: list[Ending] = []

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def put(self, ending: Ending) -> None:
        self._waiting.append(ending)
        self._wake()

    async def write(self) -> None:
        size = self._batch_size() if self._put_large else 1
        batch, self._waiting = self._waiting[:size], self._waiting[size:]
        if self._put_large:
            for ending in filter(is_large, batch):
                self._put_large(ending)
            batch = [ending for ending in batch if not is_large(ending)]
        # Apart, because a batch of completed jobs without children takes a shorter way.
        for part in ([e for e in batch if e.children is None], [e for e in batch if e.children is not None]):
            if part:
                await self._commit(part, self._settle, self._report)

    def _batch_size(self) -> int:
        """No more lines of logs than one statement should write, unless they are one attempt's."""
        lines = 0
        for size, ending in enumerate(self._waiting[:BATCH]):
            lines += ending.log.kept if ending.log is not None else 0
            if lines > LINES_AT_ONCE and size:
                return size
        return BATCH

    async def _settle(self, connection: Connection, batch: Sequence[Ending]) -> dict[int, JobState]:
        statement_seconds = None if self._put_large else LARGE_SECONDS
        return await settle(connection, batch, lock_wait_ms=_LOCK_WAIT_MS, statement_seconds=statement_seconds)

    async def _report(self, batch: Sequence[Ending], states: dict[int, JobState], maybe_done: bool) -> None:
        self._sizes.add(len(batch))
        missing = [e for e in batch if (maybe_done or e.maybe_written) and e.job_id not in states]
        if missing:
            found, _ = await self._connection.retry(lambda connection: settled(connection, missing))
            states |= found
        close_logs(batch)
        for ending in batch:
            self._on_settled(ending.job_id, ending.attempt_id, states.get(ending.job_id), ending.outcome)

    def _handle(self, item: Ending, error: asyncpg.PostgresError | StatementTimeout) -> None:
        """What the database refuses may be the log. The end does not depend on it."""
        if item.log is not None and classify(error) not in CAUSED_BY_ITEMS:
            log.warning("end is written without its log", job_id=item.job_id, error=summary(error))
            close_logs([item])
            self.put(item._replace(log=None))
        else:
            super()._handle(item, error)

    def _refuse(self, item: Ending, error: asyncpg.PostgresError) -> bool:
        if isinstance(error, _LACKS_CHARACTER) and (escaped := _escaped(item)) != item:
            log.warning("escaped what the database's encoding lacks", job_id=item.job_id, error=str(error))
            self.put(escaped)
        elif isinstance(item.outcome, Failed) and item.outcome.result is None and item.children is None:
            # Even the refusal is refused: it is tried again, so that the job does not seem never to have started.
            return False
        else:
            self._fail(item, f"The database refused what the handler returned or chained: {error}")
        return True

    def _fail(self, item: Ending, error: str) -> None:
        if isinstance(item.outcome, Failed):
            error = f"{item.outcome.error}\n\n{error}"
        log.error("outcome refused by the database", job_id=item.job_id, error=error)
        self.put(Ending(item.job_id, item.attempt_id, Failed(error), log=item.log))

    def _take_slow(self, item: Ending, error: asyncpg.PostgresError | StatementTimeout, tries: int) -> bool:
        """On a connection of its own it has more time. In the end its children are too many; without children nothing
        would be gained by failing the job."""
        if self._put_large:
            log.warning("end takes too long, written apart", job_id=item.job_id, error=summary(error))
            self._put_large(item)
            return True
        if item.children is not None and tries >= _LARGE_TRIES and isinstance(error, asyncpg.PostgresError):
            self._fail(
                item,
                f"The database cancelled the creation of the {len(item.children)} chained jobs {tries} times, the last "
                f"time with: {summary(error)}. Chain jobs that each chain a part of them.",
            )
            return True
        return False

    def _doubted(self, item: Ending) -> Ending:
        return item._replace(maybe_written=True)

    def _put_back(self, item: Ending) -> None:
        self.put(item)

    def _job_id(self, item: Ending) -> int:
        return item.job_id
