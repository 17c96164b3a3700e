"""Security headers of every response: content security policy and cross-origin policies."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor_http.middleware.cross_origin import is_public_script

_COMMON = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # URLs may contain stream tokens.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_HEADERS = {
    is_public: _COMMON | {"Cross-Origin-Resource-Policy": "cross-origin" if is_public else "same-origin"}
    for is_public in (False, True)
}
_RAW_HEADERS = {
    is_public: [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    for is_public, headers in _HEADERS.items()
}


def security_headers(scope: Scope) -> dict[str, str]:
    return _HEADERS[is_public_script(scope)]


class SecurityHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more = _RAW_HEADERS[is_public_script(scope)]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        await self._app(scope, receive, with_headers)
