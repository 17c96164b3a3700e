"""The ASGI application: what is asked for where."""

from collections.abc import Mapping
from pathlib import Path

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
from reactor_http.api.access import Permission, needs
from reactor_http.api.endpoint import routes
from reactor_http.api.openapi import show_openapi
from reactor_http.metrics.prometheus import Metrics
from reactor_http.metrics.stream_metrics import stream_metrics
from reactor_http.middleware.cross_origin import Origins
from reactor_http.middleware.request_counts import Counted, Traffic
from reactor_http.middleware.security_headers import SafeHeaders
from reactor_http.problem import Problem
from reactor_http.server.health import Ready, live
from reactor_http.state import Check, Edge

CALLS = (*jobs.CALLS, *pipelines.CALLS, *operate.CALLS, *stats.CALLS, *events.CALLS, *me.CALLS)
"""What /openapi.json describes; add yours."""


def create_app(
    database_url: str,
    settings: Settings | None = None,
    *,
    listen_url: str | None = None,
    checks: Mapping[str, Check] | None = None,
) -> Starlette:
    """To be served, or mounted into another Starlette or FastAPI application.

    `listen_url`: a direct way to the same server, past a pooler. `checks`: what else /health/ready must find well.
    """
    settings = settings or read_settings({})
    traffic = Traffic()
    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", Ready().answer),
            Route("/metrics", needs(Permission.VIEW, Metrics(traffic).answer)),
            Route("/openapi.json", show_openapi),
            *routes(CALLS),
            Mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True)),
        ],
        middleware=[
            Middleware(Counted, traffic),
            Middleware(SafeHeaders),
            Middleware(Origins, allowed=settings.origins),
        ],
        exception_handlers={
            ClientDisconnect: _gone,
            Problem: error_responses.refuse,
            ReactorError: error_responses.refuse_work,
            HTTPException: error_responses.refuse_request,
            Exception: error_responses.own_up,
        },
    )
    app.state.calls = CALLS
    app.state.edge = edge = Edge(database_url, listen_url or database_url, settings, checks or {})
    edge.checks["feed"] = lambda: edge.streams.feed is None or edge.streams.feed.is_listening
    edge.sources.append(lambda: stream_metrics(edge.streams))
    return app


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody reads this. Without it each client that leaves in the middle of its request would leave a traceback."""
    return Response(status_code=400)
