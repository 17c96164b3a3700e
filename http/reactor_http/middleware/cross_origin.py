"""Which pages of other sites may use the API: a browser tells where a page came from, and asks us."""

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reactor_http.problem import Problem

# A script that pages of every site may load; it holds no data.
PUBLIC_SCRIPT = "/reactor-progress.js"
_READING = ("GET", "HEAD", "OPTIONS")
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match, Last-Event-ID",
    "Access-Control-Max-Age": "600",
}
_EXPOSED = "ETag, Location, Retry-After"
_OWN_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """Refuses to be written to by pages of other sites, and lets the pages of those that are named read our answers.

    A browser sends POSTs for any page, and only hides the answer from it: CORS alone would be too late.
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
            refusal = None if is_allowed else _refusal(given)
            answer = refusal.response() if refusal else Response(status_code=204, headers=_PREFLIGHT)
            await answer(scope, receive, self._marked(send, given[0], is_allowed))
        elif given and scope["method"] not in _READING and not (is_allowed or _is_own(given, headers)):
            await _refusal(given).response()(scope, receive, send)
        elif is_public(scope):
            await self._app(scope, receive, _open(send))
        elif self._allowed:
            await self._app(scope, receive, self._marked(send, given[0] if given else "", is_allowed))
        else:
            await self._app(scope, receive, send)

    def _marked(self, send: Send, origin: str, is_allowed: bool) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.add_vary_header("Origin")
                if is_allowed:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers["Access-Control-Expose-Headers"] = _EXPOSED
            await send(message)

        return marked


def is_public(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) == PUBLIC_SCRIPT


def _open(send: Send) -> Send:
    """Scripts that are modules are read by CORS, whoever loads them."""

    async def opened(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Access-Control-Allow-Origin"] = "*"
        await send(message)

    return opened


def _is_own(given: list[str], headers: Headers) -> bool:
    """Whether the page is ours. By host alone: behind a proxy that speaks TLS we don't know our own scheme."""
    scheme, separator, host = given[0].partition("://")
    if len(given) > 1 or not separator or scheme not in _OWN_PORTS:
        return False
    own = headers.get("host", "").lower()
    return bool(host) and host.lower() == own.removesuffix(_OWN_PORTS[scheme])


def _refusal(given: list[str]) -> Problem:
    detail = "A page of another site asked for this, and it is not one that may."
    return Problem(403, detail, "If it should be, add its origin to REACTOR_ORIGINS.", origin=", ".join(given)[:200])
