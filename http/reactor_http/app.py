"""The ASGI application: what is asked for where."""

from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from reactor.settings import Settings, read_settings
from reactor_http.access import Permission, needs
from reactor_http.edge import Check, Edge
from reactor_http.events import all_events, pipeline_events
from reactor_http.headers import SafeHeaders
from reactor_http.health import live, ready
from reactor_http.me import me, stream_tokens
from reactor_http.origin import Origins
from reactor_http.problem import Problem


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
    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/v1/me", me),
            Route("/v1/stream-tokens", needs(Permission.VIEW, stream_tokens), methods=["POST"]),
            Route("/v1/events", all_events),
            Route("/v1/pipelines/{pipeline_id}/events", pipeline_events),
            Mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True)),
        ],
        middleware=[Middleware(SafeHeaders), Middleware(Origins, allowed=settings.origins)],
        exception_handlers={Problem: _refuse},
    )
    app.state.edge = Edge(database_url, listen_url or database_url, settings, checks or {})
    return app


async def _refuse(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()
