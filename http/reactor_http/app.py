"""Builds the ASGI application: routes, middleware and error handlers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from reactor.errors import ReactorError
from reactor.settings import Settings, read_settings
from reactor_http.api import error_responses, events, jobs, me, operate, pipelines, stats
from reactor_http.api.access import Caller, Permission, require
from reactor_http.api.access import authorize as authorize_caller
from reactor_http.api.endpoint import routes
from reactor_http.api.openapi import show_openapi
from reactor_http.metrics.prometheus import Metrics
from reactor_http.metrics.stream_metrics import stream_metrics
from reactor_http.middleware.cross_origin import CrossOrigin, forbidden, is_foreign_write
from reactor_http.middleware.request_counts import CountRequests, RequestCounts
from reactor_http.middleware.security_headers import SecurityHeaders
from reactor_http.problem import Problem
from reactor_http.server.health import Readiness, live
from reactor_http.state import AppState, Check
from reactor_http.timings import Timings

ENDPOINTS = (
    *jobs.ENDPOINTS,
    *pipelines.ENDPOINTS,
    *operate.ENDPOINTS,
    *stats.ENDPOINTS,
    *events.ENDPOINTS,
    *me.ENDPOINTS,
)
"""Every endpoint that /openapi.json describes; add new ones here."""


def create_app(
    database_url: str,
    settings: Settings | None = None,
    *,
    listen_url: str | None = None,
    checks: Mapping[str, Check] | None = None,
    timings: Timings | None = None,
) -> Starlette:
    """The application, to be served or to be mounted into another Starlette or FastAPI application.

    `listen_url`: a direct connection to the same server where `database_url` leads through a pooler. `checks`: further
    conditions of /health/ready.
    """
    settings = settings or read_settings({})
    state = AppState(database_url, listen_url or database_url, settings, checks or {}, timings)
    state.checks["feed"] = lambda: state.streams.feed is None or state.streams.feed.is_listening
    state.sources.append(lambda: stream_metrics(state.streams))
    request_counts = RequestCounts()
    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", Readiness(state).respond),
            Route("/metrics", require(Permission.VIEW, Metrics(state, request_counts).respond)),
            Route("/openapi.json", show_openapi),
            *routes(ENDPOINTS),
            Mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True)),
        ],
        middleware=[
            Middleware(CountRequests, request_counts),
            Middleware(SecurityHeaders),
            Middleware(CrossOrigin, allowed=settings.origins),
        ],
        exception_handlers={
            ClientDisconnect: _ignore_disconnect,
            Problem: error_responses.respond_to_problem,
            ReactorError: error_responses.respond_to_engine_error,
            HTTPException: error_responses.respond_to_http_error,
            Exception: error_responses.respond_to_unexpected_error,
        },
    )
    app.state.endpoints = ENDPOINTS
    app.state.reactor = state
    # The name under which earlier documentation showed it.
    app.state.edge = state
    return app


def authorize(mounted: Starlette, request: Request, permission: Literal["view", "submit", "operate"]) -> Caller:
    """For a request to an application that mounts this one: the caller, if a request to `mounted` would be allowed.

    Otherwise raises HTTPException: 400 or 401 without a valid token, 403 without the permission, or from a page of
    another site.
    """
    try:
        if is_foreign_write(request.method, request.headers, mounted.state.reactor.settings.origins):
            raise forbidden(request.headers.getlist("origin"))
        return authorize_caller(Request({**request.scope, "app": mounted}), Permission(permission))
    except Problem as problem:
        detail = " ".join(filter(None, (problem.body["detail"], problem.body.get("remedy"))))
        raise HTTPException(problem.status, detail, problem.headers) from None


async def _ignore_disconnect(request: Request, error: Exception) -> Response:
    """Never read. Without it, each client that disconnects during its request would leave a traceback in the log."""
    return Response(status_code=400)
