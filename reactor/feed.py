"""Tells everybody in this process who watches pipelines what has changed in them."""

import asyncio
from uuid import UUID

from reactor.cursor import Cursor
from reactor.desk import Desk, overview_desk, pipelines_desk
from reactor.line import Line
from reactor.listener import Listener
from reactor.topic import Reader


class Feed:
    """One for all streams of a process: what it costs the database does not depend on how many there are."""

    def __init__(self, url: str, listen_url: str) -> None:
        self._pipelines = pipelines_desk(Line(url, "reactor feed"))
        self._overview = overview_desk(Line(url, "reactor overview"))
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
