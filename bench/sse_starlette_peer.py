"""Our feed behind sse-starlette's response on plain uvicorn, for comparison in `bench/streams.py`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from uuid import UUID

import uvicorn
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactor.feed.cursor import parse
from reactor.feed.feed import Feed
from reactor.feed.subscriptions import Batch
from reactor_http.stream.sse import encode


class Peer:
    def __init__(self, url: str) -> None:
        self._url = url
        self._feed: Feed | None = None

    async def events(self, request: Request) -> Response:
        if self._feed is None:
            self._feed = Feed(self._url, self._url)
            self._running = asyncio.create_task(self._feed.run())
        reader = self._feed.join(
            UUID(request.path_params["pipeline_id"]), parse(request.headers.get("last-event-id", ""))
        )
        feed = self._feed

        async def batches() -> AsyncIterator[bytes]:
            try:
                while True:
                    batch = await reader.next()
                    assert isinstance(batch, Batch)
                    yield encode(batch)
                    if batch.state:
                        return
            finally:
                feed.leave(reader)

        return EventSourceResponse(batches(), ping=15, send_timeout=30)


if __name__ == "__main__":
    port, url = int(sys.argv[1]), sys.argv[2]
    app = Starlette(routes=[Route("/v1/pipelines/{pipeline_id}/events", Peer(url).events)])
    uvicorn.run(app, port=port, log_level="warning", access_log=False)
