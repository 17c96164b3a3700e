"""What is being watched, by whom, and what each of them has not been given yet."""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice, takewhile
from uuid import UUID

from reactor.feed.cursor import Cursor

_NEVER = 2**63


class Sign(Enum):
    """Whether what readers have is the present."""

    FRESH = "fresh"
    STALE = "stale"
    """The database does not answer: nobody knows what happens."""


class Change:
    """The newest state of one row. Shared by all who are given it."""

    __slots__ = ("edges", "encoded", "key", "kind", "row", "stamp")

    def __init__(self, kind: str, key: str, row: str, edges: str | None = None) -> None:
        self.kind = kind
        """`job`, `step` or `pipeline`."""
        self.key = key
        self.row = row
        """A JSON object."""
        self.edges = edges
        """What a job depends on, as a JSON array; None: those who are given it know that."""
        self.stamp = 0
        self.encoded: bytes | None = None
        """Left here by whoever encodes it for the wire, so that it is done once."""

    @property
    def body(self) -> str:
        """The row as readers get it."""
        return f'{self.row[:-1]},"depends_on":{self.edges or "null"}}}' if self.kind == "job" else self.row


class Batch:
    """What one reader gets at once; after it, the reader is where `cursor` says."""

    __slots__ = ("changes", "cursor", "encoded", "is_overview", "is_snapshot", "reset", "state")

    def __init__(
        self,
        changes: Sequence[Change],
        cursor: Cursor,
        state: str | None = None,
        *,
        is_snapshot: bool = False,
        is_overview: bool = False,
        reset: str = "",
    ) -> None:
        self.changes = changes
        self.cursor = cursor
        self.state = state
        """The pipeline's, if it has ended."""
        self.is_snapshot = is_snapshot
        """Everything there is, and not what has changed."""
        self.is_overview = is_overview
        """Of all pipelines, and not of one with its jobs and steps."""
        self.reset = reset
        """Why what the reader had can't be continued."""
        self.encoded: bytes | None = None


class Reader:
    """One who watches. Holds no rows: what it has not been given is found in the topic when it asks."""

    def __init__(self, topic: "Topic", cursor: Cursor | None, reset: str = "") -> None:
        self.topic = topic
        self.cursor = cursor
        self.reset = reset
        self.stamp = _NEVER
        """Of the newest batch that it was given."""
        self.first: Batch | None = None
        """What it has to be given before anything else."""
        self.failure: Exception | None = None
        self.is_gone = False
        self._sign: Sign | None = None
        """That it was given last. None: it has nothing yet that could be the present."""
        self._wake = asyncio.Event()

    def give(self, first: Batch, stamp: int) -> None:
        self.first, self.stamp, self.reset = first, stamp, ""
        self._sign = self._sign or Sign.FRESH
        self._wake.set()

    def start_over(self, why: str) -> None:
        """It gets nothing more before it is given everything."""
        self.cursor, self.reset, self.first, self.stamp = None, why, None, _NEVER

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def next(self) -> Batch | Sign:
        """Waits for it: at first a batch. Whoever takes long to come back gets the newest states, and none twice."""
        while True:
            if self.failure is not None:
                raise self.failure
            if self.first is not None:
                first, self.first = self.first, None
                return first
            if self.stamp < self.topic.stamp:
                batch = self.topic.since(self.stamp)
                self.stamp = self.topic.stamp
                return batch
            # Who starts over has not been told what happened meanwhile.
            if self._sign not in (None, self.topic.sign) and (self._sign is Sign.FRESH or not self.reset):
                self._sign = self.topic.sign
                return self._sign
            self._wake.clear()
            await self._wake.wait()


class Topic:
    """One pipeline, or (None) all of them."""

    def __init__(self, pipeline_id: UUID | None) -> None:
        self.pipeline_id = pipeline_id
        self.watched_by: set[Reader] = set()
        self.readers: set[Reader] = set()
        """Those of them who are up to date but for what lies here."""
        self.stamp = 0
        self.sign = Sign.FRESH
        self._rows: dict[str, Change] = {}
        """Newest last. Only what somebody has not been given."""
        self._newest: Batch
        self._before = 0
        self._state: str | None = None
        self._state_stamp = 0

    def add(self, changes: Sequence[Change], cursor: Cursor, state: str | None, stamp: int) -> None:
        """All readers will be given these, or what becomes of them until they ask."""
        self._forget()
        self._before, self.stamp = self.stamp, stamp
        for change in changes:
            change.stamp = stamp
            self._rows[change.key] = _with_edges(change, self._rows.pop(change.key, None))
        if any(change.kind == "pipeline" for change in changes):
            self._state, self._state_stamp = state, stamp
        self._newest = Batch(changes, cursor, state)
        for reader in self.readers:
            reader.wake()

    def show(self, sign: Sign) -> None:
        if sign is not self.sign:
            self.sign = sign
            for reader in self.watched_by:
                reader.wake()

    def since(self, stamp: int) -> Batch:
        if stamp >= self._before:
            return self._newest
        changes = list(takewhile(lambda change: change.stamp > stamp, reversed(self._rows.values())))
        changes.reverse()
        return Batch(changes, self._newest.cursor, self._state if self._state_stamp > stamp else None)

    def behind(self, most: int) -> list[Reader]:
        """Readers who have not been given more than `most` rows."""
        beyond = next(islice(reversed(self._rows.values()), most, None), None)
        return [reader for reader in self.readers if beyond and reader.stamp < beyond.stamp]

    def _forget(self) -> None:
        oldest = min((reader.stamp for reader in self.readers), default=self.stamp)
        for key in [change.key for change in takewhile(lambda c: c.stamp <= oldest, self._rows.values())]:
            del self._rows[key]


def _with_edges(change: Change, before: Change | None) -> Change:
    """For those who have not been given what it was before, and so don't know what the job depends on."""
    if before is None or before.edges is None or change.edges is not None:
        return change
    whole = Change(change.kind, change.key, change.row, before.edges)
    whole.stamp = change.stamp
    return whole


def grouped(readers: Iterable[Reader]) -> list[list[Reader]]:
    """Those who want the same: after a restart of a server that is nearly all of a pipeline's readers."""
    groups: dict[tuple[UUID | None, Cursor | None, str], list[Reader]] = {}
    for reader in readers:
        groups.setdefault((reader.topic.pipeline_id, reader.cursor, reader.reset), []).append(reader)
    return list(groups.values())
