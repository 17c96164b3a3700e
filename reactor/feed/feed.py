"""Hands the changes of pipelines to all readers in this process."""

import asyncio
from uuid import UUID

from reactor.database import statements
from reactor.database.listener import Listener
from reactor.database.reconnecting import ReconnectingConnection
from reactor.feed.cursor import Cursor
from reactor.feed.poller import Poller, Question
from reactor.feed.rows import AT_MOST
from reactor.feed.subscriptions import Reader


class Feed:
    """One for all streams of a process: its cost to the database does not depend on their number."""

    def __init__(self, url: str, listen_url: str) -> None:
        self._pipelines = _pipelines_poller(ReconnectingConnection(url, "reactor feed"))
        self._overview = _overview_poller(ReconnectingConnection(url, "reactor overview"))
        # New jobs are notified on one channel, every other change on the other.
        channels = dict.fromkeys(("reactor_jobs", "reactor_feed"), self._on_notification)
        self._listener = Listener(listen_url, "reactor feed listen", channels, self._notify)

    @property
    def pollers(self) -> dict[str, Poller]:
        return {"pipelines": self._pipelines, "overview": self._overview}

    @property
    def readers(self) -> int:
        return sum(len(topic.readers) for poller in self.pollers.values() for topic in poller.topics.values())

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
        """A reader of this pipeline, or (None) of all of them, that continues from `cursor`. `reset`: why there is
        none.

        Its first batch is what it has missed, or everything. The caller must call `leave`.
        """
        return self._poller_of(pipeline_id).join(pipeline_id, cursor, reset)

    def leave(self, reader: Reader) -> None:
        self._poller_of(reader.topic.pipeline_id).leave(reader)

    def _poller_of(self, pipeline_id: UUID | None) -> Poller:
        return self._overview if pipeline_id is None else self._pipelines

    def _on_notification(self, payload: str) -> None:
        self._notify()

    def _notify(self) -> None:
        for poller in self.pollers.values():
            poller.notify()


def _pipelines_poller(connection: ReconnectingConnection) -> Poller:
    """For readers of single pipelines."""
    return Poller(
        connection,
        statements.PIPELINE_CHANGES,
        lambda ask: (
            ask.tip,
            ask.watched,
            [pipeline_id for pipeline_id, _ in ask.newcomers],
            [cursor for _, cursor in ask.newcomers],
        ),
        gap=0.05,
    )


def _overview_poller(connection: ReconnectingConnection) -> Poller:
    """For readers of all pipelines, which see their states and not their jobs."""
    return Poller(connection, statements.OVERVIEW_CHANGES, _overview_arguments, gap=1.0)


def _overview_arguments(ask: Question) -> tuple[object, ...]:
    cursors = [cursor for _, cursor in ask.newcomers]
    oldest = min((cursor[0] for cursor in cursors if cursor), default=None)
    return ask.tip, cursors, AT_MOST, oldest
