"""The HTTP application in the test's own process."""

from typing import Any

from starlette.applications import Starlette

from reactor.settings import Settings
from reactor_http.app import create_app
from reactor_http.timings import Timings


def patient(**seconds: float) -> Timings:
    """These timings, and others for a busy machine, on which the database is only slow and not unreachable."""
    return Timings(**{"connect_seconds": 20.0, "health_seconds": 20.0, "stream_join_seconds": 20.0} | seconds)


def make_app(url: str, settings: Settings | None = None, *, timings: Timings | None = None, **more: Any) -> Starlette:
    return create_app(url, settings, timings=timings or patient(), **more)
