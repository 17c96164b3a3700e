"""One call of the API: who may, what it takes and answers. Its route and its entry in /openapi.json come from this."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import Receive, Scope, Send

from reactor_http.api.access import Endpoint, Permission, needs
from reactor_http.api.error_responses import in_time


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    endpoint: Endpoint
    summary: str
    permission: Permission | None
    answers: Mapping[int, type[BaseModel] | str | None]
    """What is answered with which status: a model of JSON, another media type, or nothing."""
    refuses: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    """Refusals that say more than others; the ordinary ones follow from the rest of this."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    body_is_required: bool = True
    conflicts: bool = False
    """May be answered with 409."""
    links: bool = False
    """Answers 200 and 202 carry a Location."""
    streams: bool = False
    """Goes on for as long as the client likes: no time limit."""

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return self.path.replace(":path}", "}")

    def guarded(self) -> Endpoint:
        endpoint = self.endpoint if self.streams else in_time(self.endpoint)
        return needs(self.permission, endpoint) if self.permission else endpoint


def routes(calls: Iterable[Call]) -> list[Route]:
    """One route per path, so that a wrong method is told which ones there are."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for call in calls:
        by_path.setdefault(call.path, {})[call.method] = call.guarded()
    return [Route(path, _ByMethod(endpoints)) for path, endpoints in by_path.items()]


class _ByMethod:
    """An application, not a function: its route matches every method, and the page's files are not asked instead."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints) | ({"HEAD": endpoints["GET"]} if "GET" in endpoints else {})
        self._app = request_response(self._answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        endpoint = self._endpoints.get(request.method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": ", ".join(self._endpoints)})
        return await endpoint(request)
