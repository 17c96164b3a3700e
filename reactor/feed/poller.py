"""Asks the database what has changed, once for all readers, and hands it out."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import asyncpg

from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify
from reactor.database.reconnecting import ReconnectingConnection
from reactor.errors import PipelineUnknown
from reactor.feed.cursor import Cursor, Snapshot
from reactor.feed.rows import AT_MOST, by_topic, changes_of, end_of, is_too_much, why_not
from reactor.feed.subscriptions import Batch, Reader, Sign, Topic, grouped
from reactor.log import get_logger

log = get_logger(__name__)

# A row whose transaction found the bell rung a moment ago may become visible only after we have looked.
_LOOK_AGAIN_SECONDS = (0.02, 0.08, 0.32)
_POLL_SECONDS = 2.0
# Readers are told that nobody knows what happens; a database that restarts or fails over quickly is not worth it.
_STALE_SECONDS = 5.0
_JOIN_GAP_SECONDS = 0.005
# Readers have been told that what they see is the present, however long the answer took: it may have waited for a lock.
_LONGEST_GAP_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_NEVER = float("inf")


class Question(NamedTuple):
    tip: Snapshot | None
    """What everybody who is up to date has seen."""
    watched: list[UUID]
    newcomers: list[tuple[UUID | None, Snapshot | None]]


class Desk:
    """One question at a time; whoever comes meanwhile is part of the next. The answer is of one snapshot, so that all
    readers are at the same place after it."""

    def __init__(
        self,
        line: ReconnectingConnection,
        statement: str,
        arguments: Callable[[Question], Sequence[object]],
        gap: float,
    ) -> None:
        """`gap`: at least so many seconds between two questions."""
        self.topics: dict[UUID | None, Topic] = {}
        self.ticks = 0
        self.lag_seconds = 0.0
        """From the last ring to the handing out of what it told of."""
        self.is_well = True
        self._line = line
        self._statement = statement
        self._arguments = arguments
        self._gap = gap
        self._joining: list[Reader] = []
        self._tip: Cursor | None = None
        self._sign = Sign.FRESH
        self._wakeup = asyncio.Event()
        self._rung_at: float | None = None
        self._looks: deque[float] = deque()
        self._asked_at = 0.0
        self._took = 0.0

    def ring(self) -> None:
        if self.topics:
            self._rung_at = self._rung_at or asyncio.get_running_loop().time()
            self._wakeup.set()

    def join(self, pipeline_id: UUID | None, cursor: Cursor | None, reset: str = "") -> Reader:
        topic = self.topics.get(pipeline_id) or self.topics.setdefault(pipeline_id, Topic(pipeline_id))
        reader = Reader(topic, cursor, reset)
        topic.watched_by.add(reader)
        self._joining.append(reader)
        self._wakeup.set()
        return reader

    def leave(self, reader: Reader) -> None:
        reader.is_gone = True
        reader.topic.readers.discard(reader)
        reader.topic.watched_by.discard(reader)
        if not reader.topic.watched_by:
            del self.topics[reader.topic.pipeline_id]

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._until_due()
                with self._patience():
                    await self._insist()
                self._show(Sign.FRESH)
        finally:
            await self._line.close()

    @contextmanager
    def _patience(self) -> Iterator[None]:
        timer = asyncio.get_running_loop().call_later(_STALE_SECONDS, self._lose_patience)
        try:
            yield
        finally:
            timer.cancel()

    def _lose_patience(self) -> None:
        self._despair(f"no answer for {_STALE_SECONDS:g} s")
        self._show(Sign.STALE)

    def _despair(self, why: str) -> None:
        if self.is_well:
            log.warning("the feed can't ask the database", error=why)
        self.is_well = False

    def _show(self, sign: Sign) -> None:
        if sign is self._sign:
            return
        self._sign = sign
        for topic in self.topics.values():
            topic.show(sign)

    async def _insist(self) -> None:
        """Until the database has answered."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._tick()
            except Exception as error:
                if classify(error) is Failure.BUG:
                    raise
                self._despair(str(error) or type(error).__name__)
                self._rung_at = self._rung_at or asyncio.get_running_loop().time()
                await asyncio.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
                await self._until_due()
            else:
                self.is_well = True
                return

    async def _until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (due := self._due()) > loop.time():
            timer = loop.call_at(min(due, loop.time() + 3600), self._wakeup.set)
            await self._wakeup.wait()
            timer.cancel()
            self._wakeup.clear()

    def _due(self) -> float:
        if self._joining:
            return self._asked_at + _JOIN_GAP_SECONDS
        if not self.topics:
            return _NEVER
        # A database that takes long to answer is not asked all the time.
        soonest = self._asked_at + max(self._gap, min(2 * self._took, _LONGEST_GAP_SECONDS))
        if self._rung_at:
            return soonest
        return max(soonest, min(self._looks[0] if self._looks else _NEVER, self._asked_at + _POLL_SECONDS))

    # One question

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        rung_at, self._rung_at = self._rung_at, None
        newcomers, self._joining = [one for one in self._joining if not one.is_gone], []
        groups = grouped(newcomers)
        watched = [topic for topic in self.topics.values() if topic.readers]
        try:
            head, *rows = await self._line.once(lambda connection: self._ask(connection, watched, groups))
        except BaseException:
            self._joining = newcomers + self._joining
            raise
        here = Cursor(head["name"], head["snapshot"])
        self.ticks += 1
        self._hand_out(rows, here, watched, groups)
        self._tip = here
        self._asked_at, self._took = loop.time(), loop.time() - began
        self._plan_looks(rung_at)

    async def _ask(
        self, connection: Connection, watched: list[Topic], groups: list[list[Reader]]
    ) -> list[asyncpg.Record]:
        question = Question(
            self._tip.snapshot if self._tip and watched else None,
            [topic.pipeline_id for topic in watched if topic.pipeline_id],
            [(one.topic.pipeline_id, one.cursor.snapshot if one.cursor else None) for one, *_ in groups],
        )
        return await connection.fetch(self._statement, *self._arguments(question))

    def _plan_looks(self, rung_at: float | None) -> None:
        if rung_at is not None:
            self.lag_seconds = self._asked_at - rung_at
            self._looks = deque(self._asked_at + pause for pause in _LOOK_AGAIN_SECONDS)
        while self._looks and self._looks[0] <= self._asked_at:
            self._looks.popleft()

    def _hand_out(
        self, rows: list[asyncpg.Record], here: Cursor, watched: list[Topic], groups: list[list[Reader]]
    ) -> None:
        if self._tip is not None and self._tip.epoch != here.epoch:
            self._start_over(
                [one for topic in watched for one in topic.readers],
                "the database is another one, or was restored or failed over",
            )
            watched = []
        answers = {place: list(answer) for place, answer in groupby(rows, key=lambda row: row["place"])}
        self._tell_watchers(answers.get(0, []), here, watched)
        for place, group in enumerate(groups, 1):
            self._welcome(group, answers.get(place, []), here)

    def _tell_watchers(self, rows: list[asyncpg.Record], here: Cursor, watched: list[Topic]) -> None:
        for topic, answer in by_topic(rows, {topic.pipeline_id: topic for topic in watched}):
            if is_too_much(topic, answer):
                self._start_over(list(topic.readers), "too much has changed at once")
            elif changes := changes_of(topic, answer):
                topic.add(changes, here, end_of(topic, answer), self.ticks)
                if topic.pipeline_id is None:
                    # What a slow one has not been given would grow for as long as it takes.
                    self._start_over(topic.behind(AT_MOST), "too much has changed since")

    def _welcome(self, group: list[Reader], rows: list[asyncpg.Record], here: Cursor) -> None:
        topic, cursor, reset = group[0].topic, group[0].cursor, group[0].reset
        if cursor and (why := why_not(cursor, here) or (is_too_much(topic, rows) and "too much has changed since")):
            for reader in group:
                self._again(reader, why)
            return
        if topic.pipeline_id and not any(row["rank"] == 3 for row in rows):
            for reader in group:
                reader.fail(PipelineUnknown(topic.pipeline_id))
            return
        changes = changes_of(topic, rows, all_of_them=cursor is None)
        batch = Batch(
            changes,
            here,
            end_of(topic, rows),
            is_snapshot=cursor is None,
            is_overview=topic.pipeline_id is None,
            reset=reset,
        )
        for reader in group:
            if not reader.is_gone:
                reader.give(batch, self.ticks)
                reader.topic.readers.add(reader)

    def _start_over(self, readers: list[Reader], why: str) -> None:
        for reader in readers:
            reader.topic.readers.discard(reader)
            self._again(reader, why)

    def _again(self, reader: Reader, why: str) -> None:
        if not reader.is_gone:
            reader.start_over(why)
            self._joining.append(reader)
            self._wakeup.set()
