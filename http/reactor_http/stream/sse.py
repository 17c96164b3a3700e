"""Server-sent events: what a reader of the feed is given, as bytes, for as long as the client stays."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reactor.errors import ReactorError
from reactor.feed.subscriptions import Batch, Change, Reader, Sign
from reactor.log import get_logger

log = get_logger(__name__)

CHUNK = 65_536
"""What is written at once: more would lie in our memory, once for each client that reads slowly."""

_RETRY_MS = 2000
_COMMENT_SECONDS = 15.0
_COMMENT = b": \n\n"
# Without an id: who reconnects goes on from what came before.
_SIGNS = {
    Sign.STALE: b'event: stale\ndata: {"reason": "the database does not answer"}\n\n',
    Sign.FRESH: b"event: fresh\ndata: {}\n\n",
}
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


class EventStream(Response):
    """Ends with the client, with the pipeline (unless it `follows`), with `end()`, or when the client does not take
    what it is sent or is no longer welcome."""

    def __init__(
        self,
        reader: Reader,
        first: Batch,
        *,
        follows: bool,
        send_seconds: float,
        is_welcome: Callable[[], bool],
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._reader = reader
        self._first: Batch | None = first
        self._follows = follows
        self._is_welcome = is_welcome
        self._on_closed = on_closed
        self._send_seconds = send_seconds
        self._sending: asyncio.Task[None] | None = None
        self._is_sending = False

    def end(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            await asyncio.wait({self._sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._on_closed()
            is_gone = leaving.done()
            self._sending.cancel()
            leaving.cancel()
            await asyncio.wait({self._sending, leaving})
        if self._is_sending:
            # To close politely would be to wait for ever for a client that does not read.
            scope.get("extensions", {}).get("reactor.abort", lambda: None)()
        elif not is_gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not self._sending.cancelled():
            self._sending.result()

    async def _send_all(self, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(send, b"retry: %d\n\n" % _RETRY_MS)
            goes_on = await self._send_batch(send, self._take_first())
            while goes_on and self._is_welcome():
                goes_on = await self._send_batch(send, await self._next())
        except _TookTooLong:
            log.info("a client that does not read is dropped")
        except ReactorError as error:
            # It had to start over, and its pipeline is gone: who comes back is told so.
            log.info("a stream can't go on", error=error.message)

    def _take_first(self) -> Batch:
        """It may be large, and is not to be kept for as long as the stream lasts."""
        first, self._first = self._first, None
        assert first is not None
        return first

    async def _send_batch(self, send: Send, batch: Batch | Sign | None) -> bool:
        """Tells whether there will be another."""
        if not isinstance(batch, Batch):
            await self._send(send, _SIGNS[batch] if batch else _COMMENT)
            return True
        content = encode(batch)
        for start in range(0, len(content), CHUNK):
            await self._send(send, content[start : start + CHUNK])
        return batch.state is None or self._follows

    async def _next(self) -> Batch | Sign | None:
        """None: nothing has happened for a while."""
        try:
            async with asyncio.timeout(_COMMENT_SECONDS):
                return await self._reader.next()
        except TimeoutError:
            return None

    async def _send(self, send: Send, content: bytes) -> None:
        self._is_sending = True
        try:
            async with asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": content, "more_body": True})
        except TimeoutError:
            raise _TookTooLong from None
        self._is_sending = False


class _TookTooLong(Exception):
    pass


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encode(batch: Batch) -> bytes:
    """Its events, the last with the cursor: whoever is cut off in the middle gets all of it again."""
    if batch.encoded is None:
        events = [b'event: reset\ndata: {"reason": "%s"}\n\n' % batch.reset.encode()] if batch.reset else []
        events += [_snapshot(batch)] if batch.is_snapshot else [_event(change) for change in batch.changes]
        if batch.state:
            events.append(b'event: end\ndata: {"state": "%s"}\n\n' % batch.state.encode())
        cursor = batch.cursor.text
        if events and cursor:
            events[-1] = b"id: %s\n%s" % (cursor.encode(), events[-1])
        batch.encoded = b"".join(events)
    return batch.encoded


def _event(change: Change) -> bytes:
    if change.encoded is None:
        change.encoded = f"event: {change.kind}\ndata: {change.body}\n\n".encode()
    return change.encoded


def _snapshot(batch: Batch) -> bytes:
    bodies: dict[str, list[str]] = {"job": [], "step": [], "pipeline": []}
    for change in batch.changes:
        bodies[change.kind].append(change.body)
    jobs, steps, pipelines = (",".join(bodies[kind]) for kind in ("job", "step", "pipeline"))
    if batch.is_overview:
        return f'event: snapshot\ndata: {{"pipelines": [{pipelines}]}}\n\n'.encode()
    return f'event: snapshot\ndata: {{"pipeline": {pipelines}, "jobs": [{jobs}], "steps": [{steps}]}}\n\n'.encode()
