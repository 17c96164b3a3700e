"""What all requests to one application share."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

import asyncpg
from starlette.requests import Request

from reactor.database import Connection, open_pool
from reactor.log import get_logger
from reactor.settings import Settings
from reactor_http.stream_token import Signer
from reactor_http.streams import Streams
from reactor_http.tokens import Tokens

log = get_logger(__name__)

Check = Callable[[], bool]


class Edge:
    """Opens nothing before the first request, so that it can be made anywhere."""

    def __init__(self, url: str, listen_url: str, settings: Settings, checks: Mapping[str, Check]) -> None:
        """`checks`: what else must be well for /health/ready, by name."""
        self.url = url
        self.listen_url = listen_url
        self.settings = settings
        self.checks = dict(checks)
        self.tokens = Tokens(settings)
        self.signer = Signer(settings)
        if self.tokens.are_configured and not self.signer.is_shared:
            log.warning(
                "REACTOR_SECRET is not set: no other pod, nor this one after a restart, knows our stream tokens"
            )
        self.streams = Streams(
            url, listen_url, most=settings.max_streams, most_per_caller=settings.max_streams_per_token
        )
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
