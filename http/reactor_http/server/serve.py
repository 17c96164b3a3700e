"""Runs the application on uvicorn until it is told to stop."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.applications import Starlette

from reactor.errors import ReactorError, SettingsInvalid
from reactor.log import get_logger
from reactor.settings import Settings
from reactor_http.auth.loopback import is_loopback
from reactor_http.server.connection_limits import Connection, Limits, abort_all, watch
from reactor_http.state import Edge

log = get_logger(__name__)

# Beside those of streams: requests, and those who have not yet said what they want.
_OTHER_CONNECTIONS = 2000
# Database, log, listener, and what the rest of the process has open.
_OTHER_FILES = 200
_END_SECONDS = 3.0
_LONGEST_END_SECONDS = 5


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn would raise the signal again once it has stopped, and end us before we have tidied up."""
        yield


async def serve_app(
    app: Starlette,
    settings: Settings,
    stop: asyncio.Event,
    *,
    on_listening: Callable[[str], None],
    listener: socket.socket | None = None,
    limits: Limits | None = None,
    is_public: bool = False,
) -> None:
    """Until `stop` is set: signals are for the program that we are part of.

    `listener`: what `bind` made, for whoever wants to know that it can before they start anything else. `is_public`:
    there is nothing in it that would need a token.
    """
    limits = limits or Limits(connections=settings.max_streams + _OTHER_CONNECTIONS)
    edge: Edge = app.state.edge
    with listener or bind(settings, is_public=is_public) as listener:
        _allow_files(limits.connections)
        server = _Server(_config(app, limits))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop, server, edge, stop)
                tasks.start_soon(watch, server.server_state)
                on_listening(address_of(settings, listener))
                await server.serve(sockets=[listener])
                tasks.cancel_scope.cancel()
        finally:
            await edge.close()


def address_of(settings: Settings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def _config(app: Starlette, limits: Limits) -> uvicorn.Config:
    # Who says from where a request came: nobody, unless uvicorn's own variable names the proxies that may.
    # By default it would believe everything on this machine.
    proxies = os.environ.get("FORWARDED_ALLOW_IPS", "")
    return uvicorn.Config(
        app,
        http=type("LimitedConnection", (Connection,), {"limits": limits}),
        ws="none",
        log_config=None,
        # It would hold addresses, and these stream tokens.
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=_LONGEST_END_SECONDS,
    )


async def _stop(server: uvicorn.Server, edge: Edge, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True
    await edge.streams.close()
    # Requests get this long to be answered. Uvicorn would wait for clients that don't read.
    await anyio.sleep(_END_SECONDS)
    abort_all(server.server_state)


def _allow_files(connections: int) -> None:
    """Each connection is an open file, and most systems allow a process 1024 until it asks for more."""
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        log.warning("fewer open files are allowed than streams may need", allowed=hard, needed=wanted)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bind(settings: Settings, *, is_public: bool = False) -> socket.socket:
    if not is_public and settings.tokens is None and settings.tokens_file is None and not is_loopback(settings.host):
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
