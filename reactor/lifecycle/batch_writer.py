"""Gathers what attempts have to write and writes it in batches, each attempt's under its fence.

A group commit: whatever has gathered while the last batch was being written goes next, so one lone job is settled at
once and a thousand share a commit. Nothing is reported written before its commit.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

import asyncpg

from reactor.counts import Histogram
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import is_transient
from reactor.database.reconnecting import ReconnectingConnection
from reactor.job import JobState
from reactor.lifecycle.settle import settle, settled
from reactor.lifecycle.step_writer import LOCK_WAIT_MS, LONE_LOCK_WAIT_MS, Recorder
from reactor.log import get_logger
from reactor.outcome import Ending, Failed

log = get_logger(__name__)
Answer = TypeVar("Answer")

BATCH = 500
_ENDINGS_LOCK_WAIT_MS = 1000
_BLOCKED_PAUSE_SECONDS = 0.5


class _Said(NamedTuple):
    job_id: int
    fraction: float | None
    message: str | None
    heard: "asyncio.Future[bool]"


class Settler:
    """`on_settled` is told of every ending: its new state, or None if the attempt was stale; `on_idle` that all is
    written; `batches` of how many endings shared each commit."""

    def __init__(
        self,
        line: ReconnectingConnection,
        on_settled: Callable[[Ending, JobState | None], None],
        on_idle: Callable[[], None],
        batches: Histogram,
    ) -> None:
        self._line = line
        self._on_settled = on_settled
        self._on_idle = on_idle
        self._endings: list[Ending] = []
        self._progress: dict[UUID, _Said] = {}
        self._chores: deque[Callable[[Connection], Awaitable[object]]] = deque()
        self._work = asyncio.Event()
        self._recorder = Recorder(line, self._work.set)
        self.record = self._recorder.record
        self._is_writing = False
        self._blocked: set[asyncio.TimerHandle] = set()
        self._batches = batches

    def put(self, ending: Ending) -> None:
        self._endings.append(ending)
        self._work.set()

    def do(self, chore: Callable[[Connection], Awaitable[object]]) -> None:
        """What is too rare for a batch, written in its turn."""
        self._chores.append(chore)
        self._work.set()

    async def ask(self, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """The same for who needs the answer, or the error."""
        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def chore(connection: Connection) -> None:
            try:
                answer = await question(connection)
            except Exception as error:
                if is_transient(error):
                    raise  # to be asked again
                if not heard.done():
                    heard.set_exception(error)
            else:
                if not heard.done():
                    heard.set_result(answer)

        self.do(chore)
        return await heard

    async def progress(self, job_id: int, attempt_id: UUID, fraction: float | None, message: str | None) -> bool:
        """Returns when it is written. False: the attempt is stale. Who says nothing learns just that."""
        return await asyncio.shield(self.say(job_id, attempt_id, fraction, message))

    def say(self, job_id: int, attempt_id: UUID, fraction: float | None, message: str | None) -> "asyncio.Future[bool]":
        """The same for who does not wait for it."""
        heard = asyncio.get_running_loop().create_future()
        before = self._progress.pop(attempt_id, None)
        said = _Said(job_id, fraction, message, heard)
        self._progress[attempt_id] = said if before is None else _merged(before, said)
        self._work.set()
        return heard

    def _put_back(self, attempt_id: UUID, said: _Said) -> None:
        since = self._progress.pop(attempt_id, None)
        self._progress[attempt_id] = said if since is None else _merged(said, since)
        self._work.set()

    @property
    def is_idle(self) -> bool:
        waiting = self._endings or self._progress or self._chores or self._blocked or self._is_writing
        return not waiting and self._recorder.is_idle

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            self._is_writing = True
            while self._endings or self._progress or self._chores or self._recorder.has_work:
                # An attempt's last word on its steps and its progress belongs before its end.
                await self._recorder.write()
                await self._write_progress()
                await self._write_endings()
                await self._do_chores()
            self._is_writing = False
            self._on_idle()

    async def _write_progress(self) -> None:
        said, self._progress = self._progress, {}
        if said:
            await self._say(said)

    async def _say(self, said: dict[UUID, _Said]) -> None:
        in_lock_order = sorted(said.items(), key=lambda item: item[1].job_id)
        lock_wait_ms = LOCK_WAIT_MS if len(said) > 1 else LONE_LOCK_WAIT_MS

        async def write(connection: Connection) -> set[UUID]:
            records = await connection.fetch(
                statements.PROGRESS,
                [one.job_id for _, one in in_lock_order],
                [attempt_id for attempt_id, _ in in_lock_order],
                [one.fraction for _, one in in_lock_order],
                [one.message for _, one in in_lock_order],
                lock_wait_ms,
            )
            return {record[0] for record in records}

        try:
            written, _ = await self._line.retry(write)
        except asyncpg.PostgresError as error:
            # One of them can't be written, or somebody's open transaction has its row: the others are heard without it.
            if len(said) > 1:
                for attempt_id, one in in_lock_order:
                    await self._say({attempt_id: one})
                return
            [(attempt_id, one)] = said.items()
            if isinstance(error, asyncpg.LockNotAvailableError):
                self._later(lambda: self._put_back(attempt_id, one))
            elif not one.heard.done():
                one.heard.set_exception(error)
            return
        for attempt_id, one in said.items():
            if not one.heard.done():
                one.heard.set_result(attempt_id in written)

    async def _do_chores(self) -> None:
        while self._chores:
            try:
                await self._line.retry(self._chores.popleft())
            except asyncpg.PostgresError as error:
                # The next stock-taking, or the end of this worker, puts right what was to be put right.
                log.error("chore failed", error=str(error), sqlstate=error.sqlstate)

    async def _write_endings(self) -> None:
        batch, self._endings = self._endings[:BATCH], self._endings[BATCH:]
        # Apart, because children lock their parents first: in one batch the order of ids would be lost.
        for part in ([e for e in batch if e.children is None], [e for e in batch if e.children is not None]):
            if part:
                await self._settle(part)

    async def _settle(self, endings: Sequence[Ending]) -> None:
        try:
            # Somebody's open transaction may have one of the rows: the others don't wait for it long.
            states, repeated = await self._line.retry(
                lambda connection: settle(connection, endings, lock_wait_ms=_ENDINGS_LOCK_WAIT_MS)
            )
        except asyncpg.PostgresError as error:
            # One of them can't be written. In a batch of its own it stands in nobody's way.
            if len(endings) > 1:
                for ending in endings:
                    await self._settle([ending])
            else:
                self._put_off(endings[0], error)
            return
        self._batches.add(len(endings))
        if repeated and len(states) < len(endings):
            missing = [ending for ending in endings if ending.job_id not in states]
            found, _ = await self._line.retry(lambda connection: settled(connection, missing))
            states |= found
        for ending in endings:
            self._on_settled(ending, states.get(ending.job_id))

    def _put_off(self, ending: Ending, error: asyncpg.PostgresError) -> None:
        if isinstance(error, asyncpg.LockNotAvailableError):
            log.info("job locked by somebody", job_id=ending.job_id)
            self._later(lambda: self.put(ending))
        elif isinstance(ending.outcome, Failed):
            # Even the refusal is refused: the attempt stays held, and is given back with the worker.
            log.error("job can't be settled", job_id=ending.job_id, error=str(error))
            self._on_settled(ending, None)
        else:
            log.error("outcome refused by the database", job_id=ending.job_id, error=str(error))
            self.put(
                Ending(
                    ending.job_id,
                    ending.attempt_id,
                    Failed(f"What the handler returned or chained can't be stored: {error}"),
                )
            )

    def _later(self, what: Callable[[], None]) -> None:
        def again() -> None:
            self._blocked.discard(timer)
            what()

        timer = asyncio.get_running_loop().call_later(_BLOCKED_PAUSE_SECONDS * random.uniform(0.5, 1.5), again)
        self._blocked.add(timer)


def _merged(before: _Said, after: _Said) -> _Said:
    """One row, one write: the newer word counts, and whoever waits for the older is answered with it."""
    after.heard.add_done_callback(partial(_answer, before.heard))
    return after._replace(
        fraction=before.fraction if after.fraction is None else after.fraction,
        message=before.message if after.message is None else after.message,
    )


def _answer(waiting: "asyncio.Future[bool]", done: "asyncio.Future[bool]") -> None:
    if waiting.done() or done.cancelled():
        return
    if (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())
