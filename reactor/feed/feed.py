"""Tells everybody in this process who watches pipelines what has changed in them."""

import asyncio
from uuid import UUID

from reactor.database import statements
from reactor.database.listener import Listener
from reactor.database.reconnecting import ReconnectingConnection
from reactor.feed.cursor import Cursor
from reactor.feed.poller import Desk, Question
from reactor.feed.rows import AT_MOST
from reactor.feed.subscriptions import Reader


class Feed:
    """One for all streams of a process: what it costs the database does not depend on how many there are."""

    def __init__(self, url: str, listen_url: str) -> None:
        self._pipelines = _pipelines_desk(ReconnectingConnection(url, "reactor feed"))
        self._overview = _overview_desk(ReconnectingConnection(url, "reactor overview"))
        # New jobs ring one bell, every other change the other.
        channels = dict.fromkeys(("reactor_jobs", "reactor_feed"), self._on_bell)
        self._listener = Listener(listen_url, "reactor feed listen", channels, self._ring)

    @property
    def desks(self) -> dict[str, Desk]:
        return {"pipelines": self._pipelines, "overview": self._overview}

    @property
    def readers(self) -> int:
        return sum(len(topic.readers) for desk in self.desks.values() for topic in desk.topics.values())

    @property
    def is_listening(self) -> bool:
        return self._listener.is_listening

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listener.run())
            tasks.create_task(self._pipelines.run())
            tasks.create_task(self._overview.run())

    def join(self, pipeline_id: UUID | None, cursor: Cursor | None, reset: str = "") -> Reader:
        """A reader of this pipeline, or (None) of all of them, who goes on from `cursor`. `reset`: why there is none.

        Its first batch is what it has missed, or everything. Whoever joins leaves.
        """
        return self._desk_of(pipeline_id).join(pipeline_id, cursor, reset)

    def leave(self, reader: Reader) -> None:
        self._desk_of(reader.topic.pipeline_id).leave(reader)

    def _desk_of(self, pipeline_id: UUID | None) -> Desk:
        return self._overview if pipeline_id is None else self._pipelines

    def _on_bell(self, payload: str) -> None:
        self._ring()

    def _ring(self) -> None:
        for desk in self.desks.values():
            desk.ring()


def _pipelines_desk(line: ReconnectingConnection) -> Desk:
    """For readers of single pipelines."""
    return Desk(
        line,
        statements.FEED,
        lambda ask: (
            ask.tip,
            ask.watched,
            [pipeline_id for pipeline_id, _ in ask.newcomers],
            [cursor for _, cursor in ask.newcomers],
        ),
        gap=0.05,
    )


def _overview_desk(line: ReconnectingConnection) -> Desk:
    """For readers of all pipelines, who see their states and not their jobs."""
    return Desk(line, statements.OVERVIEW, _overview_arguments, gap=1.0)


def _overview_arguments(ask: Question) -> tuple[object, ...]:
    cursors = [cursor for _, cursor in ask.newcomers]
    oldest = min((cursor[0] for cursor in cursors if cursor), default=None)
    return ask.tip, cursors, AT_MOST, oldest
