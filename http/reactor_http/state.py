"""The state that all requests to one application share: database pool, tokens, open streams."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from starlette.requests import Request

from reactor.database.connection import Connection, open_pool
from reactor.database.refusals import refusals_explained
from reactor.database.url import address
from reactor.errors import DatabaseUnreachable
from reactor.log import get_logger
from reactor.settings import Settings
from reactor_http.auth.stream_token import Signer
from reactor_http.auth.tokens import Tokens
from reactor_http.cache import CachedValue
from reactor_http.database_clock import DatabaseClock
from reactor_http.measure import Source
from reactor_http.stream.streams import Streams
from reactor_http.timings import Timings

log = get_logger(__name__)

Check = Callable[[], bool]


class AppState:
    """Opens nothing before the first request, so that an application can be created without a database."""

    def __init__(
        self,
        url: str,
        listen_url: str,
        settings: Settings,
        checks: Mapping[str, Check],
        timings: Timings | None = None,
    ) -> None:
        """`checks`: further conditions of /health/ready, by name."""
        self.url = url
        self.listen_url = listen_url
        self.settings = settings
        self.checks = dict(checks)
        self.timings = timings or Timings()
        self.tokens = Tokens(settings)
        self.clock = DatabaseClock(self.connection, self.timings.clock_seconds)
        self.signer = Signer(settings)
        if self.tokens.are_configured and not self.signer.is_shared:
            log.warning(
                "REACTOR_SECRET is not set: other pods, and this one after a restart, will reject its stream tokens"
            )
        self.streams = Streams(
            url,
            listen_url,
            max_streams=settings.max_streams,
            max_per_caller=settings.max_streams_per_token,
            timings=self.timings,
        )
        self.sources: list[Source] = []
        """Further sources of metrics for /metrics."""
        self._cached: dict[str, CachedValue[Any]] = {}
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection of the pool, with its time zone set to UTC. Database errors inside become ReactorErrors."""
        pool = await self._opened()
        try:
            connection = await pool.acquire(timeout=self.timings.connect_seconds)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            why = "no connection in time" if isinstance(error, TimeoutError) else str(error)
            raise DatabaseUnreachable(address(self.url), why, "Is the server running?") from error
        try:
            with refusals_explained():
                yield cast(Connection, connection)
        finally:
            await pool.release(connection)

    def cached(self, key: str, seconds: float) -> CachedValue[Any]:
        """The cached value of this key. Entries are never removed, so keys must come from a small set."""
        return self._cached.setdefault(key, CachedValue(seconds))

    async def close(self) -> None:
        await self.streams.close()
        if self._pool is not None:
            self._pool.terminate()

    async def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        async with self._opening:
            if self._pool is None:
                self._pool = await open_pool(self.url, name="reactor http", size=10, prepares=False, timezone="UTC")
            return self._pool


def state_of(request: Request) -> AppState:
    return cast(AppState, request.app.state.reactor)
