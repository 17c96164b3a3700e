"""The open streams of this process: opens them within the configured limits, and ends them at shutdown."""

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
from reactor_http.timings import Timings

log = get_logger(__name__)


class Streams:
    """Starts the feed with the first stream; the feed then runs as long as the process."""

    def __init__(self, url: str, listen_url: str, *, max_streams: int, max_per_caller: int, timings: Timings) -> None:
        self._url = url
        self._listen_url = listen_url
        self._max_streams = max_streams
        self._max_per_caller = max_per_caller
        self._timings = timings
        self._per_caller: Counter[str] = Counter()
        self._joining: set[Reader] = set()
        self._open: set[EventStream] = set()
        self._feed: Feed | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def feed(self) -> Feed | None:
        """None before the first stream."""
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
        follow: bool,
        is_authorized: Callable[[], bool],
    ) -> EventStream | None:
        """None: the pipeline has ended, and the client has received everything.

        `is_authorized` is called before each batch.
        """
        self._check_limits(caller)
        self._per_caller[caller] += 1
        feed = self._feed or self._start()
        reader = feed.join(pipeline_id, cursor, reset)
        stream = None
        try:
            first = await self._first(reader)
            if first.changes or first.state is None or follow:
                stream = EventStream(
                    reader,
                    first,
                    follow=follow,
                    send_seconds=self._timings.stream_send_seconds,
                    keepalive_seconds=self._timings.stream_keepalive_seconds,
                    is_authorized=is_authorized,
                    on_closed=lambda: self._close(feed, reader, caller, stream),
                )
                self._open.add(stream)
            return stream
        finally:
            if stream is None:
                self._close(feed, reader, caller, None)

    async def close(self) -> None:
        """Ends all streams at once; their clients resume at another server."""
        self._is_closed = True
        for reader in self._joining:
            reader.fail(_shutting_down())
        for stream in list(self._open):
            stream.end()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    def _check_limits(self, caller: str) -> None:
        later = {"retry-after": "5"}
        if self._is_closed:
            raise _shutting_down()
        if self._per_caller.total() >= self._max_streams:
            raise Problem(
                503,
                f"This server has reached its limit of {self._max_streams} open streams.",
                "Try again later, or raise REACTOR_MAX_STREAMS.",
                headers=later,
            )
        if self._per_caller[caller] >= self._max_per_caller:
            raise Problem(
                429,
                f"{caller} has reached the limit of {self._max_per_caller} open streams.",
                "Close some, or raise REACTOR_MAX_STREAMS_PER_TOKEN.",
                headers=later,
            )

    async def _first(self, reader: Reader) -> Batch:
        self._joining.add(reader)
        seconds = self._timings.stream_join_seconds
        try:
            async with asyncio.timeout(seconds):
                first = await reader.next()
        except TimeoutError:
            raise Problem(
                503,
                f"The database did not respond within {seconds:g} s.",
                "Try again in a moment.",
                headers={"retry-after": "2"},
            ) from None
        finally:
            self._joining.discard(reader)
        assert isinstance(first, Batch)
        return first

    def _close(self, feed: Feed, reader: Reader, caller: str, stream: EventStream | None) -> None:
        feed.leave(reader)
        self._per_caller[caller] -= 1
        if not self._per_caller[caller]:
            del self._per_caller[caller]
        if stream is not None:
            self._open.discard(stream)

    def _start(self) -> Feed:
        self._feed = Feed(self._url, self._listen_url)
        self._running = asyncio.create_task(self._feed.run())
        self._running.add_done_callback(self._on_feed_ended)
        return self._feed

    def _on_feed_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("feed failed", exc_info=error)
            self._feed = None
            for reader in self._joining:
                reader.fail(Problem(503, "The stream failed.", "Try again now.", headers={"retry-after": "1"}))
            for stream in list(self._open):
                stream.end()


def _shutting_down() -> Problem:
    return Problem(
        503, "This server is shutting down.", "Reconnect to reach another server.", headers={"retry-after": "5"}
    )
