"""The streaming response: encodes batches of the feed as server-sent events until the client disconnects."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reactor.errors import ReactorError
from reactor.feed.subscriptions import Batch, Change, Reader, Sign
from reactor.log import get_logger

log = get_logger(__name__)

CHUNK = 65_536
"""Bytes written at once. More would occupy memory for each client that reads slowly."""

# Neither has a blank line of its own, at which many clients would dispatch an empty message: `retry:` belongs to the
# first event, and a comment may stand before any field.
_RETRY = b"retry: 2000\n"
_KEEPALIVE = b": keep-alive\n"
# Without an id: a client that reconnects resumes from the event before.
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
    """Ends when the client disconnects, does not read in time or loses its authorization; when the pipeline ends
    (unless `follow`); or by `end()`."""

    def __init__(
        self,
        reader: Reader,
        first: Batch,
        *,
        follow: bool,
        send_seconds: float,
        keepalive_seconds: float,
        is_authorized: Callable[[], bool],
        on_closed: Callable[[], None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._reader = reader
        self._first: Batch | None = first
        self._follow = follow
        self._is_authorized = is_authorized
        self._on_closed = on_closed
        self._send_seconds = send_seconds
        self._keepalive_seconds = keepalive_seconds
        self._sending: asyncio.Task[None] | None = None
        self._is_sending = False

    def end(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._sending = asyncio.create_task(self._send_all(send))
        disconnecting = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({self._sending, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._on_closed()
            is_disconnected = disconnecting.done()
            self._sending.cancel()
            disconnecting.cancel()
            await asyncio.wait({self._sending, disconnecting})
        if self._is_sending:
            # A regular close would wait forever for a client that does not read.
            scope.get("extensions", {}).get("reactor.abort", lambda: None)()
        elif not is_disconnected:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if not self._sending.cancelled():
            self._sending.result()

    async def _send_all(self, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(send, _RETRY)
            has_more = await self._send_batch(send, self._take_first())
            while has_more and self._is_authorized():
                has_more = await self._send_batch(send, await self._next())
        except _SendTimedOut:
            log.info("stream closed: client does not read")
        except ReactorError as error:
            # It had to start over, and its pipeline no longer exists. A client that reconnects gets this error.
            log.info("stream closed: it can't be continued", error=error.message)

    def _take_first(self) -> Batch:
        """Releases the first batch, which may be large, before the stream goes on."""
        first, self._first = self._first, None
        assert first is not None
        return first

    async def _next(self) -> Batch | Sign | None:
        """None: nothing happened within the keep-alive interval."""
        try:
            async with asyncio.timeout(self._keepalive_seconds):
                return await self._reader.next()
        except TimeoutError:
            return None

    async def _send_batch(self, send: Send, batch: Batch | Sign | None) -> bool:
        """Returns whether more batches follow."""
        if not isinstance(batch, Batch):
            await self._send(send, _SIGNS[batch] if batch else _KEEPALIVE)
            return True
        content = encode(batch)
        for start in range(0, len(content), CHUNK):
            await self._send(send, content[start : start + CHUNK])
        return batch.state is None or self._follow

    async def _send(self, send: Send, content: bytes) -> None:
        self._is_sending = True
        try:
            async with asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": content, "more_body": True})
        except TimeoutError:
            raise _SendTimedOut from None
        self._is_sending = False


def encode(batch: Batch) -> bytes:
    """The batch's events. The cursor is the last line of the last one: a client cut off before it gets the whole batch
    again, even if it stores a cursor before the event is complete."""
    if batch.encoded is None:
        events = [b'event: reset\ndata: {"reason": "%s"}\n\n' % batch.reset.encode()] if batch.reset else []
        events += [_snapshot(batch)] if batch.is_snapshot else [_event(change) for change in batch.changes]
        if batch.state:
            events.append(b'event: end\ndata: {"state": "%s"}\n\n' % batch.state.encode())
        cursor = batch.cursor.text
        if events and cursor:
            events[-1] = b"%sid: %s\n\n" % (events[-1].removesuffix(b"\n"), cursor.encode())
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


class _SendTimedOut(Exception):
    pass


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
