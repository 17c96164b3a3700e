"""Runs the application on uvicorn until it is told to stop."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp

from reactor.errors import ReactorError, SettingsInvalid
from reactor.settings import Settings


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signal again once it has stopped, and end us before we have tidied up."""
        yield


async def serve_app(
    app: ASGIApp, settings: Settings, stop: asyncio.Event, *, on_listening: Callable[[str], None]
) -> None:
    """Until `stop` is set: signals are for the program that we are part of."""
    with _bind(settings) as listener:
        server = _Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop, server, stop)
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            on_listening(f"http://{host}:{listener.getsockname()[1]}")
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _bind(settings: Settings) -> socket.socket:
    if settings.tokens is None and settings.tokens_file is None and not _is_loopback(settings.host):
        raise SettingsInvalid(
            [f"REACTOR_HOST is {settings.host}: without REACTOR_TOKENS the server only binds to loopback (127.0.0.1)."]
        )
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ReactorError(
            f"The HTTP server can't use {settings.host}:{settings.port}: {error.strerror or error}.",
            "Choose another address with --port or --host (--port 0: any free port).",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
