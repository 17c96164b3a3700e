"""Asks the database what changed, once for all readers, and hands it out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import asyncpg

from reactor.database import wakeups
from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify, summary
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.retry import Backoff, RetryPolicy
from reactor.database.wakeups import NEVER, Reason, Wakeups
from reactor.errors import PipelineUnknown
from reactor.feed.cursor import Cursor, Snapshot
from reactor.feed.rows import AT_MOST, by_topic, read_answer, why_not
from reactor.feed.subscriptions import Batch, Reader, Sign, Topic, grouped
from reactor.log import get_logger

log = get_logger(__name__)

_RETRY = RetryPolicy(first_seconds=0.1, longest_seconds=2.0)


@dataclass(frozen=True)
class Timings:
    recheck_seconds: tuple[float, ...] = (0.02, 0.08, 0.32)
    """When to ask again after a notification: see Wakeups."""
    poll_seconds: float = 2.0
    join_gap_seconds: float = 0.005
    """Between two questions when a reader has joined."""
    longest_gap_seconds: float = 5.0
    """Between two questions, however long the last answer took (it may have waited for a lock): readers take what they
    have for current."""
    stale_seconds: float = 5.0
    """Without an answer for this long, readers are shown that what they have is stale. A database that restarts or
    fails over faster is not worth it."""
    retry_policy: RetryPolicy = _RETRY


class Question(NamedTuple):
    tip: Snapshot | None
    """What all readers that are up to date have seen."""
    watched: list[UUID]
    newcomers: list[tuple[UUID | None, Snapshot | None]]


class Poller:
    """One question at a time; readers that join meanwhile are part of the next. An answer is of one snapshot, so that
    all readers are at the same cursor after it."""

    timings = Timings()

    def __init__(
        self,
        connection: ReconnectingConnection,
        statement: str,
        arguments: Callable[[Question], Sequence[object]],
        gap: float,
    ) -> None:
        """`gap`: the least seconds between two questions."""
        self.topics: dict[UUID | None, Topic] = {}
        self.ticks = 0
        self.lag_seconds = 0.0
        """From the last notification to the handing out of its changes."""
        self.is_well = True
        self.connection = connection
        self.statement = statement
        self.tip: Cursor | None = None
        """What all readers that are up to date have seen."""
        self.took_seconds = 0.0
        """The last answer."""
        self._arguments = arguments
        self._gap = gap
        self._joining: list[Reader] = []
        self._sign = Sign.FRESH
        self._answered_at = 0.0
        self._wakeups = Wakeups(
            wakeups.Timings(self.timings.recheck_seconds, self.timings.poll_seconds),
            not_before=self._not_before,
            due_at=lambda: 0.0 if self._joining else NEVER,
        )

    def notify(self) -> None:
        if self.topics:
            self._wakeups.notify()

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self.timings.retry_policy)
        try:
            while True:
                reason = await self._wakeups.next()
                deadline = loop.call_later(self.timings.stale_seconds, self._mark_stale)
                try:
                    while not await self._is_answered(reason):
                        await backoff.pause()
                        reason = await self._wakeups.next()
                finally:
                    deadline.cancel()
                backoff.reset()
                self.is_well = True
                self.show(Sign.FRESH)
        finally:
            await self.connection.close()

    async def _is_answered(self, reason: Reason) -> bool:
        try:
            await self._ask_and_hand_out(reason)
        except Exception as error:
            if classify(error) is Failure.BUG:
                raise
            self._mark_unwell(summary(error))
            self._wakeups.notify()  # it was taken for this question, and is still unanswered
            return False
        return True

    async def _ask_and_hand_out(self, reason: Reason) -> None:
        loop = asyncio.get_running_loop()
        asked_at, notified_at = loop.time(), self._wakeups.notified_at
        newcomers, self._joining = [one for one in self._joining if not one.is_gone], []
        groups = grouped(newcomers)
        watched = [topic for topic in self.topics.values() if topic.readers]
        try:
            head, *rows = await self.connection.once(lambda connection: self._ask(connection, watched, groups))
        except BaseException:
            self._joining = newcomers + self._joining
            raise
        here = Cursor(head["epoch"], head["snapshot"])
        self.ticks += 1
        self._hand_out(rows, here, watched, groups)
        self.tip = here
        self._answered_at = loop.time()
        self.took_seconds = self._answered_at - asked_at
        if Reason.NOTIFIED in reason:
            self.lag_seconds = self._answered_at - notified_at

    async def _ask(
        self, connection: Connection, watched: list[Topic], groups: list[list[Reader]]
    ) -> list[asyncpg.Record]:
        question = Question(
            self.tip.snapshot if self.tip and watched else None,
            [topic.pipeline_id for topic in watched if topic.pipeline_id],
            [(one.topic.pipeline_id, one.cursor.snapshot if one.cursor else None) for one, *_ in groups],
        )
        return await connection.fetch(self.statement, *self._arguments(question))

    def _hand_out(
        self, rows: list[asyncpg.Record], here: Cursor, watched: list[Topic], groups: list[list[Reader]]
    ) -> None:
        if self.tip is not None and self.tip.epoch != here.epoch:
            self.start_over(
                [one for topic in watched for one in topic.readers],
                "the database is another one, or was restored or failed over",
            )
            watched = []
        answers = {reader: list(answer) for reader, answer in groupby(rows, key=lambda row: row["reader"])}
        self._hand_to_watchers(answers.get(0, []), here, watched)
        for reader, group in enumerate(groups, 1):
            self._welcome(group, answers.get(reader, []), here)

    def _hand_to_watchers(self, rows: list[asyncpg.Record], here: Cursor, watched: list[Topic]) -> None:
        for topic, answer in by_topic(rows, {topic.pipeline_id: topic for topic in watched}):
            if answer.is_too_much:
                self.start_over(list(topic.readers), "too much has changed at once")
            elif answer.changes:
                topic.add(answer.changes, here, answer.state, self.ticks)
                if topic.pipeline_id is None:
                    # What a slow reader has not been given would grow without limit.
                    self.start_over(topic.behind(AT_MOST), "too much has changed since")

    # Readers that join

    def join(self, pipeline_id: UUID | None, cursor: Cursor | None, reset: str = "") -> Reader:
        topic = self.topics.get(pipeline_id) or self.topics.setdefault(pipeline_id, Topic(pipeline_id))
        reader = Reader(topic, cursor, reset)
        topic.watched_by.add(reader)
        self._joining.append(reader)
        self._wakeups.check()
        return reader

    def _welcome(self, group: list[Reader], rows: list[asyncpg.Record], here: Cursor) -> None:
        topic, cursor, reset = group[0].topic, group[0].cursor, group[0].reset
        answer = read_answer(topic.pipeline_id, rows, all_of_them=cursor is None)
        if cursor and (why := why_not(cursor, here) or (answer.is_too_much and "too much has changed since")):
            for reader in group:
                self._rejoin(reader, why)
            return
        if topic.pipeline_id and not answer.is_known:
            for reader in group:
                reader.fail(PipelineUnknown(topic.pipeline_id))
            return
        batch = Batch(
            answer.changes,
            here,
            answer.state,
            is_snapshot=cursor is None,
            is_overview=topic.pipeline_id is None,
            reset=reset,
        )
        for reader in group:
            if not reader.is_gone:
                reader.give(batch, self.ticks)
                reader.topic.readers.add(reader)

    def start_over(self, readers: list[Reader], why: str) -> None:
        """They get a snapshot next."""
        for reader in readers:
            reader.topic.readers.discard(reader)
            self._rejoin(reader, why)

    def _rejoin(self, reader: Reader, why: str) -> None:
        if not reader.is_gone:
            reader.start_over(why)
            self._joining.append(reader)
            self._wakeups.check()

    def leave(self, reader: Reader) -> None:
        reader.is_gone = True
        reader.topic.readers.discard(reader)
        reader.topic.watched_by.discard(reader)
        if not reader.topic.watched_by:
            del self.topics[reader.topic.pipeline_id]

    # Its state

    def _not_before(self) -> float:
        if self._joining:
            return self._answered_at + self.timings.join_gap_seconds
        if not self.topics:
            return NEVER
        # A database that takes long to answer is not asked all the time.
        return self._answered_at + max(self._gap, min(2 * self.took_seconds, self.timings.longest_gap_seconds))

    def show(self, sign: Sign) -> None:
        """Whether what readers have is current."""
        if sign is self._sign:
            return
        self._sign = sign
        for topic in self.topics.values():
            topic.show(sign)

    def _mark_stale(self) -> None:
        self._mark_unwell(f"no answer for {self.timings.stale_seconds:g} s")
        self.show(Sign.STALE)

    def _mark_unwell(self, why: str) -> None:
        if self.is_well:
            log.warning("the feed can't read the database", error=why)
        self.is_well = False
