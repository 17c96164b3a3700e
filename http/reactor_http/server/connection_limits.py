"""Time limits for client connections, which uvicorn lacks."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import anyio
import h11
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from reactor.log import get_logger

log = get_logger(__name__)

ABORT = "reactor.abort"
_CHECK_SECONDS = 0.5


@dataclass(frozen=True)
class Limits:
    """How long a client may take, and how many connections there may be."""

    head_seconds: float = 10
    """From the connection, or the first byte of a further request, to the end of the request's head."""
    crowded_head_seconds: float = 2
    """The same while more than half of the allowed connections are open."""
    body_seconds: float = 30
    """From the end of the head to the end of the body."""
    stall_seconds: float = 60
    """Without reading any of the data that waits to be sent."""
    close_seconds: float = 5
    """To read the rest while the connection is being closed."""
    connections: int = 10_000


class LimitedConnection(H11Protocol):
    """A connection with deadlines. Uvicorn waits forever for a head or body, and for a client that does not read.

    The connection records when each wait began, and `enforce_limits` checks all connections twice a second. Requests
    pay nothing for that; a timer each would have to be set and cancelled.
    """

    limits = Limits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._inner_app, self.app = self.app, self._run_with_abort
        self._head_since: float | None = None
        self._body_since = 0.0
        self._stalled_since: float | None = None
        self._closing_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = time.monotonic()
        if len(self.connections) > self.limits.connections:
            transport.write(_error_response(503, "Service Unavailable", "There are too many connections."))
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_responding():
            # After the response uvicorn's own timer runs, until the first byte of the next request stops it.
            self._head_since = None
        elif self._head_since is None:
            self._head_since = time.monotonic()

    def pause_writing(self) -> None:
        self._stalled_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        super().resume_writing()

    async def _run_with_abort(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a stream abort the connection of a client that does not read: closing would wait for the client."""
        self._body_since = time.monotonic()
        scope.setdefault("extensions", {})[ABORT] = self.transport.abort
        await self._inner_app(scope, receive, send)

    def _is_responding(self) -> bool:
        # Uvicorn's annotation ignores that there is no cycle before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def close_if_overdue(self, now: float) -> None:
        limits = self.limits
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > limits.close_seconds:
                self.transport.abort()
        elif self._stalled_since is not None and now - self._stalled_since > limits.stall_seconds:
            self.transport.abort()
        elif self._is_responding():
            if self.cycle.more_body and now - self._body_since > limits.body_seconds:
                self.transport.abort()
        elif self._head_since is not None:
            is_crowded = len(self.connections) > limits.connections / 2
            if now - self._head_since > (limits.crowded_head_seconds if is_crowded else limits.head_seconds):
                self._time_out_head()

    def _time_out_head(self) -> None:
        # Browsers open connections ahead of need, and would take a 408 for the response to their next request.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(_error_response(408, "Request Timeout", "The request did not arrive in time."))
        self.transport.close()


async def enforce_limits(state: ServerState) -> None:
    """Runs until it is cancelled."""
    while True:
        await anyio.sleep(_CHECK_SECONDS)
        now = time.monotonic()
        for connection in list(state.connections):
            if isinstance(connection, LimitedConnection):
                connection.close_if_overdue(now)


def abort_all(state: ServerState) -> None:
    for connection in list(state.connections):
        connection.transport.abort()


def _error_response(status: int, title: str, detail: str) -> bytes:
    body = f'{{"type": "about:blank", "title": "{title}", "status": {status}, "detail": "{detail}"}}'
    return (
        f"HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n\r\n{body}"
    ).encode()
