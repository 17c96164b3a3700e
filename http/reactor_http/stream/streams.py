"""The open streams of this process: how many there may be, and their end at shutdown."""

import asyncio
from collections import Counter
from collections.abc import Callable
from uuid import UUID

from reactor.feed.cursor import Cursor
from reactor.feed.feed import Feed
from reactor.feed.subscriptions import Batch, Reader
from reactor.log import get_logger
from reactor_http.problem import Problem
from reactor_http.stream.sse import EventStream

SEND_SECONDS = 30.0
"""What a client gets to take what it is sent."""

log = get_logger(__name__)

_JOIN_SECONDS = 5.0


class Streams:
    """Nothing is opened before the first stream, and the feed then lives as long as the process."""

    def __init__(self, url: str, listen_url: str, *, most: int, most_per_caller: int) -> None:
        self.send_seconds = SEND_SECONDS
        self._url = url
        self._listen_url = listen_url
        self._most = most
        self._most_per_caller = most_per_caller
        self._places: Counter[str] = Counter()
        self._joining: set[Reader] = set()
        self._open: set[EventStream] = set()
        self._feed: Feed | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def feed(self) -> Feed | None:
        """None: nobody has watched anything yet."""
        return self._feed

    @property
    def count(self) -> int:
        return len(self._open)

    async def open(
        self,
        caller: str,
        pipeline_id: UUID | None,
        cursor: Cursor | None,
        *,
        reset: str,
        follows: bool,
        is_welcome: Callable[[], bool],
    ) -> EventStream | None:
        """None: the pipeline has ended, and who asks has seen all of it. `is_welcome`: asked from time to time."""
        self._check_room(caller)
        self._places[caller] += 1
        feed = self._feed or self._start()
        reader = feed.join(pipeline_id, cursor, reset)
        stream = None
        try:
            first = await self._first(reader)
            if first.changes or first.state is None or follows:
                stream = EventStream(
                    reader,
                    first,
                    follows=follows,
                    send_seconds=self.send_seconds,
                    is_welcome=is_welcome,
                    on_closed=lambda: self._close(feed, reader, caller, stream),
                )
                self._open.add(stream)
            return stream
        finally:
            if stream is None:
                self._close(feed, reader, caller, None)

    async def close(self) -> None:
        """All of them end now; clients go on elsewhere, from where they are."""
        self._is_closed = True
        for reader in self._joining:
            reader.fail(_shutting_down())
        for stream in list(self._open):
            stream.end()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _check_room(self, caller: str) -> None:
        later = {"retry-after": "5"}
        if self._is_closed:
            raise _shutting_down()
        if self._places.total() >= self._most:
            raise Problem(
                503,
                f"This server has {self._most} streams open, and takes no more.",
                "Try again later, or raise REACTOR_MAX_STREAMS.",
                headers=later,
            )
        if self._places[caller] >= self._most_per_caller:
            raise Problem(
                429,
                f"{caller} has {self._most_per_caller} streams open here, and may not have more.",
                "Close some, or raise REACTOR_MAX_STREAMS_PER_TOKEN.",
                headers=later,
            )

    async def _first(self, reader: Reader) -> Batch:
        self._joining.add(reader)
        try:
            async with asyncio.timeout(_JOIN_SECONDS):
                first = await reader.next()
        except TimeoutError:
            raise Problem(
                503,
                f"The database has not answered within {_JOIN_SECONDS:g} s.",
                "Try again in a moment.",
                headers={"retry-after": "2"},
            ) from None
        finally:
            self._joining.discard(reader)
        assert isinstance(first, Batch)
        return first

    def _close(self, feed: Feed, reader: Reader, caller: str, stream: EventStream | None) -> None:
        feed.leave(reader)
        self._places[caller] -= 1
        if not self._places[caller]:
            del self._places[caller]
        if stream is not None:
            self._open.discard(stream)

    def _start(self) -> Feed:
        self._feed = Feed(self._url, self._listen_url)
        self._running = asyncio.create_task(self._feed.run())
        self._running.add_done_callback(self._on_feed_ended)
        return self._feed

    def _on_feed_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("the feed broke", exc_info=error)
            self._feed = None
            for reader in self._joining:
                reader.fail(Problem(503, "The streams broke.", "Try again now.", headers={"retry-after": "1"}))
            for stream in list(self._open):
                stream.end()


def _shutting_down() -> Problem:
    return Problem(
        503, "This server is shutting down.", "Connect again: another one answers.", headers={"retry-after": "5"}
    )
