"""Cross-origin rules: which sites' pages may call the API from a browser."""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor_http.problem import Problem

# A script that pages of any site may load; it contains no data.
PUBLIC_SCRIPT = "/reactor-progress.js"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "ETag, Location, Retry-After"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class CrossOrigin:
    """Rejects writes from pages of other sites, and lets pages of the allowed origins read responses.

    A browser sends a page's POST to any site and only hides the response from the page: CORS alone would be too late.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.getlist("origin")
        is_allowed = len(given) == 1 and given[0] in self._allowed
        if given and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            response = Response(status_code=204, headers=_PREFLIGHT) if is_allowed else forbidden(given).response()
            await response(scope, receive, self._with_cors(send, given[0], is_allowed))
        elif is_foreign_write(scope["method"], headers, self._allowed):
            await forbidden(given).response()(scope, receive, send)
        elif is_public_script(scope):
            await self._app(scope, receive, _open_to_all(send))
        elif self._allowed:
            await self._app(scope, receive, self._with_cors(send, given[0] if given else "", is_allowed))
        else:
            await self._app(scope, receive, send)

    def _with_cors(self, send: Send, origin: str, is_allowed: bool) -> Send:
        async def with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Origin")
                if is_allowed:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers["Access-Control-Expose-Headers"] = _EXPOSED
            await send(message)

        return with_cors


def is_foreign_write(method: str, headers: Headers, allowed: Iterable[str]) -> bool:
    """Whether the page of a site that is not allowed sends this request."""
    given = headers.getlist("origin")
    is_allowed = len(given) == 1 and given[0] in allowed
    return bool(given) and method not in _SAFE_METHODS and not (is_allowed or _is_own(given, headers))


def is_public_script(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) == PUBLIC_SCRIPT


def _open_to_all(send: Send) -> Send:
    """Browsers load module scripts with CORS, from any site."""

    async def with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Access-Control-Allow-Origin"] = "*"
        await send(message)

    return with_header


def _is_own(given: list[str], headers: Headers) -> bool:
    """Whether the page is served by this server. Compares hosts only: a TLS proxy hides the scheme."""
    scheme, separator, host = given[0].partition("://")
    if len(given) > 1 or not separator or scheme not in _DEFAULT_PORTS:
        return False
    own = headers.get("host", "").lower()
    return bool(host) and host.lower() == own.removesuffix(_DEFAULT_PORTS[scheme])


def forbidden(given: list[str]) -> Problem:
    detail = "The request comes from a page of another site, and its origin is not allowed."
    return Problem(403, detail, "To allow it, add the origin to REACTOR_ORIGINS.", origin=", ".join(given)[:200])
