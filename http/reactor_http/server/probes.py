"""A pod's own small application: whether it is well, and what it counts. No data of jobs, so it asks for no token."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactor.settings import Settings
from reactor_http.metrics.prometheus import exposed
from reactor_http.metrics.worker_metrics import worker_metrics
from reactor_http.server.health import Ready, live
from reactor_http.state import Check, Edge

Counts = Callable[[], Mapping[UUID, Mapping[str, Any]]]


def create_probes(
    database_url: str, settings: Settings, *, checks: Mapping[str, Check], pod: str, counts: Counts
) -> Starlette:
    """`counts`: what each of this pod's worker processes has done."""

    async def metrics(request: Request) -> Response:
        """From memory alone: the database may be away."""
        measures = [measure for worker, told in counts().items() for measure in worker_metrics(pod, str(worker), told)]
        return exposed(request, measures)

    app = Starlette(
        routes=[Route("/health/live", live), Route("/health/ready", Ready().answer), Route("/metrics", metrics)],
    )
    app.state.edge = Edge(database_url, database_url, settings, checks)
    return app
