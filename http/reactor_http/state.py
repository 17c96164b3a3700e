"""What all requests to one application share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from starlette.requests import Request

from reactor.database.connection import Connection, address, open_pool
from reactor.database.refusals import refusals_explained
from reactor.errors import DatabaseUnreachable
from reactor.log import get_logger
from reactor.settings import Settings
from reactor_http.auth.stream_token import Signer
from reactor_http.auth.tokens import Tokens
from reactor_http.cache import Recent
from reactor_http.database_clock import DatabaseClock
from reactor_http.measure import Source
from reactor_http.stream.streams import Streams

log = get_logger(__name__)

Check = Callable[[], bool]


class Edge:
    """Opens nothing before the first request, so that it can be made anywhere."""

    request_seconds = 30.0
    """What a request that is no stream may take."""
    connect_seconds = 2.0
    """How long it waits for a connection: a client would rather know."""

    def __init__(self, url: str, listen_url: str, settings: Settings, checks: Mapping[str, Check]) -> None:
        """`checks`: what else must be well for /health/ready, by name."""
        self.url = url
        self.listen_url = listen_url
        self.settings = settings
        self.checks = dict(checks)
        self.tokens = Tokens(settings)
        self.clock = DatabaseClock(self.connection)
        self.signer = Signer(settings)
        if self.tokens.are_configured and not self.signer.is_shared:
            log.warning(
                "REACTOR_SECRET is not set: no other pod, nor this one after a restart, knows our stream tokens"
            )
        self.streams = Streams(
            url, listen_url, most=settings.max_streams, most_per_caller=settings.max_streams_per_token
        )
        self.sources: list[Source] = []
        """What else tells /metrics its numbers."""
        self._recent: dict[str, Recent[Any]] = {}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """One of a few, whose times are in UTC. What the database refuses meanwhile comes out as a ReactorError."""
        pool = await self._opened()
        try:
            connection = await pool.acquire(timeout=self.connect_seconds)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            why = "no connection in time" if isinstance(error, TimeoutError) else str(error)
            raise DatabaseUnreachable(address(self.url), why, "Is the server running?") from error
        try:
            with refusals_explained():
                yield cast(Connection, connection)
        finally:
            await pool.release(connection)

    def recent(self, key: str, seconds: float) -> Recent[Any]:
        """Where answers to this question are kept for so long. There must not be many different keys."""
        return self._recent.setdefault(key, Recent(seconds))

    async def close(self) -> None:
        await self.streams.close()
        if self._pool is not None:
            self._pool.terminate()

    async def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await open_pool(self.url, name="reactor http", size=10, prepares=False, timezone="UTC")
            return self._pool


def edge_of(request: Request) -> Edge:
    return cast(Edge, request.app.state.edge)
