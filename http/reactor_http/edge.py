"""What all requests to one application share."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

import asyncpg
from starlette.requests import Request

from reactor.database import Connection, open_pool
from reactor.settings import Settings
from reactor_http.streams import Streams

Check = Callable[[], bool]


class Edge:
    """Opens nothing before the first request, so that it can be made anywhere."""

    def __init__(self, url: str, listen_url: str, settings: Settings, checks: Mapping[str, Check]) -> None:
        """`checks`: what else must be well for /health/ready, by name."""
        self.url = url
        self.listen_url = listen_url
        self.settings = settings
        self.checks = dict(checks)
        self.streams = Streams(url, listen_url, most=5000, most_per_caller=500)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        if self._pool is None:
            self._pool = await open_pool(self.url, name="reactor http", size=10, prepares=False)
        async with self._pool.acquire() as connection:
            yield cast(Connection, connection)

    async def close(self) -> None:
        await self.streams.close()
        if self._pool is not None:
            self._pool.terminate()


def edge_of(request: Request) -> Edge:
    return cast(Edge, request.app.state.edge)
