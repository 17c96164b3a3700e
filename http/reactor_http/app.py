"""The ASGI application: what is asked for where."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from reactor_http.health import live, ready


def create_app(database_url: str) -> Starlette:
    app = Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", ready),
            Mount("/", StaticFiles(directory=Path(__file__).parent / "page", html=True)),
        ]
    )
    app.state.database_url = database_url
    return app
