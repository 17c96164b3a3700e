"""A server as `reactor serve` starts it, in a process of its own, with additional paths that misbehave."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from reactor.log import configure_logging
from reactor.settings import read_settings
from reactor_http.api.access import Permission, authorize_stream, caller, operator, require
from reactor_http.app import create_app
from reactor_http.server.connection_limits import ABORT, Limits
from reactor_http.server.serve import serve_app


class MachineClock:
    """Used instead of the database's clock: this server has no database."""

    async def now(self) -> float:
        return time.time()


async def explode(request: Request) -> Response:
    header, address = request.headers.get("authorization"), str(request.url)
    raise RuntimeError("it exploded") from ValueError(f"{len(str(header))} {len(address)}")


async def explode_in_a_stream(request: Request) -> Response:
    await authorize_stream(request, None)
    return await explode(request)


async def who(request: Request) -> Response:
    return JSONResponse([caller(request).name, operator(request).came_from])


async def read(request: Request) -> Response:
    return JSONResponse(len(await request.body()))


async def flood(request: Request) -> Response:
    """Sends without end."""

    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000
            # Sending to a disconnected client does not yield to the event loop.
            await anyio.lowlevel.checkpoint()

    return StreamingResponse(lines())


async def big(request: Request) -> Response:
    """Fits into uvicorn's buffer, but not into the system's."""
    return Response(b"x" * int(request.query_params["bytes"]))


async def abort(request: Request) -> Response:
    request.scope["extensions"][ABORT]()
    await anyio.sleep_forever()
    raise AssertionError


async def main() -> None:
    settings = read_settings()
    app = create_app("postgresql://nobody@127.0.0.1:1/nothing", settings)
    app.state.reactor.clock = MachineClock()
    app.router.routes[:0] = [
        Route("/explode", require(Permission.VIEW, explode), methods=["GET", "POST"]),
        Route("/explode-in-a-stream", explode_in_a_stream),
        Route("/who", require(Permission.VIEW, who)),
        Route("/read", read, methods=["POST"]),
        *(Route(f"/{path.__name__}", path) for path in (flood, big, abort)),
    ]
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    limits = os.environ.get("TEST_LIMITS")
    await serve_app(
        app,
        settings,
        stop,
        on_listening=lambda address: print(address, flush=True),
        limits=Limits(**json.loads(limits)) if limits else None,
    )


if __name__ == "__main__":
    configure_logging("debug")
    asyncio.run(main())
