"""Which pipelines are watched, by which readers, and what each reader has not been given yet."""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice, takewhile
from uuid import UUID

from reactor.feed.cursor import Cursor

_NEVER = 2**63


class Sign(Enum):
    """Whether what readers have is current."""

    FRESH = "fresh"
    STALE = "stale"
    """The database does not answer: the present state is unknown."""


class Change:
    """The newest state of one row, shared by all readers of it."""

    __slots__ = ("edges", "encoded", "key", "kind", "row", "stamp")

    def __init__(self, kind: str, key: str, row: str, edges: str | None = None) -> None:
        self.kind = kind
        """`job`, `step` or `pipeline`."""
        self.key = key
        self.row = row
        """A JSON object."""
        self.edges = edges
        """What a job depends on, as a JSON array; None: its readers know that."""
        self.stamp = 0
        self.encoded: bytes | None = None
        """Stored by the encoder for the wire, so that it is encoded once."""

    @property
    def body(self) -> str:
        """The row as readers get it."""
        return f'{self.row[:-1]},"depends_on":{self.edges or "null"}}}' if self.kind == "job" else self.row


class Batch:
    """What a reader gets at once. After it, the reader is at `cursor`."""

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
        """The final state of the pipeline, if it has ended."""
        self.is_snapshot = is_snapshot
        """All rows, and not only those that changed."""
        self.is_overview = is_overview
        """Of all pipelines, and not of one with its jobs and steps."""
        self.reset = reset
        """Why the reader can't continue from its cursor."""
        self.encoded: bytes | None = None


class Topic:
    """One pipeline, or (None) all of them."""

    def __init__(self, pipeline_id: UUID | None) -> None:
        self.pipeline_id = pipeline_id
        self.watched_by: set[Reader] = set()
        self.readers: set[Reader] = set()
        """Those of them that are up to date except for the rows kept here."""
        self.stamp = 0
        self.sign = Sign.FRESH
        self._rows: dict[str, Change] = {}
        """Newest last. Only rows that some reader has not been given."""
        self._newest: Batch
        self._before = 0
        self._state: str | None = None
        self._state_stamp = 0

    def behind(self, most: int) -> "list[Reader]":
        """Readers that have more than `most` rows to get."""
        beyond = next(islice(reversed(self._rows.values()), most, None), None)
        return [reader for reader in self.readers if beyond and reader.stamp < beyond.stamp]

    def show(self, sign: Sign) -> None:
        if sign is not self.sign:
            self.sign = sign
            for reader in self.watched_by:
                reader.wake()

    def add(self, changes: Sequence[Change], cursor: Cursor, state: str | None, stamp: int) -> None:
        """All readers get these, or the newer states that follow until they ask."""
        given_to_all = min((reader.stamp for reader in self.readers), default=self.stamp)
        for key in [row.key for row in takewhile(lambda row: row.stamp <= given_to_all, self._rows.values())]:
            del self._rows[key]
        self._before, self.stamp = self.stamp, stamp
        for change in changes:
            change.stamp = stamp
            newest, previous = change, self._rows.pop(change.key, None)
            if previous is not None and previous.edges is not None and change.edges is None:
                # For readers that missed its previous state, and so don't know what the job depends on.
                newest = Change(change.kind, change.key, change.row, previous.edges)
                newest.stamp = stamp
            self._rows[change.key] = newest
        if any(change.kind == "pipeline" for change in changes):
            self._state, self._state_stamp = state, stamp
        self._newest = Batch(changes, cursor, state)
        for reader in self.readers:
            reader.wake()

    def since(self, stamp: int) -> Batch:
        if stamp >= self._before:
            return self._newest
        changes = list(takewhile(lambda change: change.stamp > stamp, reversed(self._rows.values())))
        changes.reverse()
        return Batch(changes, self._newest.cursor, self._state if self._state_stamp > stamp else None)


class Reader:
    """One subscriber. Holds no rows: the topic has what it has not been given yet."""

    def __init__(self, topic: Topic, cursor: Cursor | None, reset: str = "") -> None:
        self.topic = topic
        self.cursor = cursor
        self.reset = reset
        self.stamp = _NEVER
        """Of the newest batch that it got."""
        self.first: Batch | None = None
        """Its first batch, to be delivered before anything else."""
        self.failure: Exception | None = None
        self.is_gone = False
        self._sign: Sign | None = None
        """The last one delivered. None: it has no rows yet that could be current."""
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def next(self) -> Batch | Sign:
        """Waits for the next one, first a batch. A slow reader gets the newest state of each row, and none twice."""
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
            # Not FRESH before the snapshot of a reader that starts over: it does not know yet what happened meanwhile.
            if self._sign not in (None, self.topic.sign) and (self._sign is Sign.FRESH or not self.reset):
                self._sign = self.topic.sign
                return self._sign
            self._wake.clear()
            await self._wake.wait()

    def give(self, first: Batch, stamp: int) -> None:
        self.first, self.stamp, self.reset = first, stamp, ""
        self._sign = self._sign or Sign.FRESH
        self._wake.set()

    def start_over(self, why: str) -> None:
        """The next batch is a snapshot."""
        self.cursor, self.reset, self.first, self.stamp = None, why, None, _NEVER

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._wake.set()


def grouped(readers: Iterable[Reader]) -> list[list[Reader]]:
    """Readers that need the same: after a server's restart nearly all readers of a pipeline."""
    groups: dict[tuple[UUID | None, Cursor | None, str], list[Reader]] = {}
    for reader in readers:
        groups.setdefault((reader.topic.pipeline_id, reader.cursor, reader.reset), []).append(reader)
    return list(groups.values())
