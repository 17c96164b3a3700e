"""Declares an endpoint of the API once; its route and its entry in /openapi.json are derived from the declaration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import Receive, Scope, Send

from reactor_http.api.access import Permission, RequestHandler, require
from reactor_http.api.error_responses import limit_time


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    handler: RequestHandler
    summary: str
    permission: Permission | None
    responses: Mapping[int, type[BaseModel] | str | None]
    """By status: the model of a JSON body, another media type, or None for an empty body."""
    errors: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    """Errors with fields of their own. Those that every such endpoint can return follow from the other attributes."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    body_is_required: bool = True
    may_conflict: bool = False
    """May respond with 409."""
    sends_location: bool = False
    """Responses 200 and 202 carry a Location header."""
    is_stream: bool = False
    """Stays open as long as the client does: no time limit."""

    @property
    def template(self) -> str:
        """The path in OpenAPI's notation."""
        return self.path.replace(":path}", "}")

    def checked_handler(self) -> RequestHandler:
        """The handler with its permission check and time limit."""
        handler = self.handler if self.is_stream else limit_time(self.handler)
        return require(self.permission, handler) if self.permission else handler


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """One route per path, so that a 405 response can list the allowed methods."""
    by_path: dict[str, dict[str, RequestHandler]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint.checked_handler()
    return [Route(path, _ByMethod(handlers)) for path, handlers in by_path.items()]


class _ByMethod:
    """Dispatches by method.

    An ASGI application rather than a function: its route then matches every method, and a request with a wrong one does
    not fall through to the page's static files.
    """

    def __init__(self, handlers: Mapping[str, RequestHandler]) -> None:
        self._handlers = dict(handlers) | ({"HEAD": handlers["GET"]} if "GET" in handlers else {})
        self._app = request_response(self._respond)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        handler = self._handlers.get(request.method)
        if handler is None:
            raise HTTPException(405, headers={"Allow": ", ".join(self._handlers)})
        return await handler(request)
