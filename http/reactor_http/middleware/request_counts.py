"""Counts requests by route and answer, and how long they took to be answered."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor.counts import Histogram

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNMATCHED = "(none)"


class Traffic:
    """Routes by their templates, so that no caller can make up new series."""

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


class Counted:
    """ASGI middleware. The time is that to the first byte: a stream that is open all day is answered at once, too."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        is_answered = False

        def answered(status: int) -> None:
            nonlocal is_answered
            is_answered = True
            path: str | None = getattr(scope.get("route"), "path", None)
            route = _UNMATCHED if path is None else path or "/"
            self._traffic.count(scope["method"], route, status, time.monotonic() - began)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception:
            if not is_answered:
                answered(500)
            raise
