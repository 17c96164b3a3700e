"""Headers that every answer carries, so that a browser does nothing with it that we did not mean."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor_http.middleware.cross_origin import is_public

_ALWAYS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Stream tokens stand in addresses.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_SAFE = {
    is_open: _ALWAYS | {"Cross-Origin-Resource-Policy": "cross-origin" if is_open else "same-origin"}
    for is_open in (False, True)
}
_RAW = {
    is_open: [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    for is_open, headers in _SAFE.items()
}


def safe_headers(scope: Scope) -> dict[str, str]:
    return _SAFE[is_public(scope)]


class SafeHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more = _RAW[is_public(scope)]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await self._app(scope, receive, with_headers)
