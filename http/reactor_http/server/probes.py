"""The small application of a worker pod: health checks and metrics. It shows no job data, so it needs no token."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactor.settings import Settings
from reactor_http.metrics.prometheus import render_metrics
from reactor_http.metrics.worker_metrics import worker_metrics
from reactor_http.server.health import Readiness, live
from reactor_http.state import AppState, Check

Counts = Callable[[], Mapping[UUID, Mapping[str, Any]]]


def create_probes(
    database_url: str, settings: Settings, *, checks: Mapping[str, Check], pod: str, counts: Counts
) -> Starlette:
    """`counts`: the counts of each of this pod's worker processes."""
    state = AppState(database_url, database_url, settings, checks)

    async def metrics(request: Request) -> Response:
        """From memory alone, so that it works while the database is unreachable."""
        by_worker = counts().items()
        measures = [measure for worker, counted in by_worker for measure in worker_metrics(pod, str(worker), counted)]
        return render_metrics(request, measures)

    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", Readiness(state).respond),
            Route("/metrics", metrics),
        ],
    )
    app.state.reactor = state
    return app
