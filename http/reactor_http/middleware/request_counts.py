"""Counts requests by route and status, and measures the time to their first byte."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor.counts import Histogram

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNMATCHED = "(none)"


class RequestCounts:
    """By route template, so that callers can't create new time series."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        """By method, route and status."""
        self.durations: dict[str, Histogram] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        key = method if method in _METHODS else "other", route, status
        self.requests[key] = self.requests.get(key, 0) + 1
        histogram = self.durations.get(route)
        if histogram is None:
            histogram = self.durations[route] = Histogram(BOUNDS)
        histogram.add(seconds)


class CountRequests:
    """ASGI middleware. Measures the time to the first byte, so that a long stream does not count as slow."""

    def __init__(self, app: ASGIApp, counts: RequestCounts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        is_counted = False

        def count(status: int) -> None:
            nonlocal is_counted
            is_counted = True
            path: str | None = getattr(scope.get("route"), "path", None)
            route = _UNMATCHED if path is None else path or "/"
            self._counts.count(scope["method"], route, status, time.monotonic() - began)

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counting_send)
        except Exception:
            if not is_counted:
                count(500)
            raise
