"""The one task that writes what the attempts of a worker process leave: logs, steps, progress, ends, and rare
statements."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar
from uuid import UUID

import asyncpg

from reactor.counts import Histogram
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify, is_transient, summary
from reactor.database.reconnecting import ReconnectingConnection
from reactor.errors import StatementTimeout
from reactor.job_log import LogOptions
from reactor.lifecycle.batch_writer import CAUSED_BY_ITEMS, POSTPONED
from reactor.lifecycle.ending_writer import LARGE_SECONDS, EndingWriter, OnSettled
from reactor.lifecycle.log_writer import LogWriter
from reactor.lifecycle.progress_writer import ProgressWriter
from reactor.lifecycle.step_writer import StepWriter
from reactor.log import get_logger

log = get_logger(__name__)
Answer = TypeVar("Answer")

_MARGIN_SECONDS = 30.0
"""The server ends a statement that takes too long itself, as long as it can be reached."""
Statement: TypeAlias = Callable[[Connection], Awaitable[object]]


class Writers:
    def __init__(
        self,
        connection: ReconnectingConnection,
        on_settled: OnSettled,
        batch_sizes: Histogram,
        logs: LogOptions | None = None,
    ) -> None:
        self.on_idle: Callable[[], None] = lambda: None
        """Called when everything is written."""
        self._connection = connection
        self._has_work = asyncio.Event()
        self._is_writing = False
        self.logs = LogWriter(connection, self._has_work.set, logs)
        self.steps = StepWriter(connection, self._has_work.set)
        self.progress = ProgressWriter(connection, self._has_work.set)
        self._large_connection = connection.beside("large ends", LARGE_SECONDS + _MARGIN_SECONDS)
        self._has_large = asyncio.Event()
        self._is_writing_large = False
        self._large = EndingWriter(self._large_connection, self._has_large.set, on_settled, batch_sizes)
        self.endings = EndingWriter(connection, self._has_work.set, on_settled, batch_sizes, self._large.put)
        # An attempt's last word on its steps and its progress belongs before its end.
        self._in_order = self.logs, self.steps, self.progress, self.endings
        self._statements: deque[tuple[Statement, int]] = deque()
        """With the number of times that they were postponed."""
        self._postponed: set[asyncio.TimerHandle] = set()

    def release_stopped(self, worker_id: UUID, job_id: int) -> None:
        """The handler of this job, which was taken from the worker, has stopped: its scope is free."""
        self.do(lambda connection: connection.execute(statements.RELEASE_STOPPED, worker_id, [job_id]))

    def do(self, statement: Statement) -> None:
        """For what is too rare for a batch. Written after the batches that wait."""
        self._statements.append((statement, 0))
        self._has_work.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        writing_large = asyncio.create_task(self._write_large())
        writing_large.add_done_callback(lambda _: self._has_work.set())
        try:
            await self._write(writing_large)
        finally:
            writing_large.cancel()
            await asyncio.wait([writing_large])

    async def _write(self, writing_large: asyncio.Task[None]) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            if writing_large.done():
                writing_large.result()  # raises its error
            self._is_writing = True
            while self._statements or any(writer.has_work for writer in self._in_order):
                for writer in self._in_order:
                    await writer.write()
                await self._write_statements()
            self._is_writing = False
            self.on_idle()

    async def _write_large(self) -> None:
        """Ends with many children, one at a time, while the others go on."""
        while True:
            await self._has_large.wait()
            self._has_large.clear()
            self._is_writing_large = True
            try:
                while self._large.has_work:
                    await self._large.write()
            finally:
                await self._large_connection.close()
                self._is_writing_large = False
            self._has_work.set()  # which ends with a report

    async def _write_statements(self) -> None:
        while self._statements:
            statement, tries = self._statements.popleft()
            try:
                await self._connection.retry(statement, unless=CAUSED_BY_ITEMS)
            except (asyncpg.PostgresError, StatementTimeout) as error:
                if is_transient(error):
                    self._postpone(statement, tries + 1, error)
                else:
                    # The next reconciliation, or the release of this worker's claims, makes up for it.
                    log.error("write failed", error=summary(error))

    def _postpone(self, statement: Statement, tries: int, error: Exception) -> None:
        def put_back() -> None:
            self._postponed.discard(timer)
            self._statements.append((statement, tries))
            self._has_work.set()

        pause = POSTPONED.pause_after(tries)
        log.warning("write postponed", tries=tries, seconds=round(pause, 1), error=summary(error))
        timer = asyncio.get_running_loop().call_later(pause, put_back)
        self._postponed.add(timer)

    async def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """The same for a caller that needs the answer, or the error."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def statement(connection: Connection) -> None:
            try:
                answer = await question(connection)
            except Exception as error:
                if is_transient(error) and classify(error) is not Failure.LOCKED:
                    raise  # to be asked again
                if not answered.done():
                    answered.set_exception(error)
            else:
                if not answered.done():
                    answered.set_result(answer)

        self.do(statement)
        return await answered

    @property
    def is_idle(self) -> bool:
        is_writing = self._is_writing or self._is_writing_large
        has_statements = bool(self._statements or self._postponed)
        return not (is_writing or has_statements) and all(w.is_idle for w in (*self._in_order, self._large))
