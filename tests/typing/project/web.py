"""An application that serves reactor's API beside its own."""

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.routing import Mount

from reactor.settings import read_settings
from reactor_http.app import create_app
from reactor_http.measure import Measure


def orders_waiting() -> Iterable[Measure]:
    return [Measure("shop_orders_waiting", "Orders that wait.", "gauge", 3)]


def application(url: str) -> Starlette:
    return Starlette(routes=[Mount("/jobs", create_app(url, read_settings()))])
