"""Runs the application on uvicorn until it is stopped."""

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
from reactor_http.server.connection_limits import LimitedConnection, Limits, abort_all, enforce_limits
from reactor_http.state import AppState

log = get_logger(__name__)

# In addition to streams: other requests, and connections without a request.
_OTHER_CONNECTIONS = 2000
# Database connections, the log, listeners, and what the rest of the process has open.
_OTHER_FILES = 200
_SHUTDOWN_SECONDS = 3.0
_LONGEST_SHUTDOWN_SECONDS = 5


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the program: uvicorn would raise them again before our own shutdown has finished."""
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
    """Serves until `stop` is set; handling signals is up to the program.

    `listener`: the result of `bind`, for programs that bind before they start anything else. `is_public`: the
    application has nothing that requires a token.
    """
    limits = limits or Limits(connections=settings.max_streams + _OTHER_CONNECTIONS)
    state: AppState = app.state.reactor
    with listener or bind(settings, is_public=is_public) as listener:
        _raise_file_limit(limits.connections)
        server = _Server(_config(app, limits))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop, server, state, stop)
                tasks.start_soon(enforce_limits, server.server_state)
                on_listening(address_of(settings, listener))
                await server.serve(sockets=[listener])
                tasks.cancel_scope.cancel()
        finally:
            await state.close()


def address_of(settings: Settings, listener: socket.socket) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{listener.getsockname()[1]}"


def _config(app: Starlette, limits: Limits) -> uvicorn.Config:
    # Forwarded addresses are trusted only from the proxies that uvicorn's own variable names. By default uvicorn would
    # trust every program on this machine.
    proxies = os.environ.get("FORWARDED_ALLOW_IPS", "")
    return uvicorn.Config(
        app,
        http=type("LimitedConnection", (LimitedConnection,), {"limits": limits}),
        ws="none",
        log_config=None,
        # It would contain URLs, and these stream tokens.
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=_LONGEST_SHUTDOWN_SECONDS,
    )


async def _stop(server: uvicorn.Server, state: AppState, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True
    await state.streams.close()
    # Open requests get this long to finish. Uvicorn would wait for clients that don't read.
    await anyio.sleep(_SHUTDOWN_SECONDS)
    abort_all(server.server_state)


def _raise_file_limit(connections: int) -> None:
    """Each connection is an open file, and the default limit of most systems is 1024."""
    wanted = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        log.warning("limit of open files is lower than the streams may need", allowed=hard, needed=wanted)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def bind(settings: Settings, *, is_public: bool = False) -> socket.socket:
    if not is_public and settings.tokens is None and settings.tokens_file is None and not is_loopback(settings.host):
        raise SettingsInvalid(
            [f"REACTOR_HOST is {settings.host}: without REACTOR_TOKENS the server binds to loopback only (127.0.0.1)."]
        )
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ReactorError(
            f"The HTTP server can't use {settings.host}:{settings.port}: {error.strerror or error}.",
            "Choose another address with --port or --host (--port 0 picks a free port).",
        ) from error
