"""The endpoints about the caller: name and permissions, and stream tokens."""

from datetime import UTC, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor_http.api.access import Permission, caller, caller_if_known
from reactor_http.api.endpoint import Endpoint
from reactor_http.api.read_request import read_body
from reactor_http.api.responses import Problem, ResponseBody
from reactor_http.auth.stream_token import LONGEST_SECONDS, SHORTEST_SECONDS
from reactor_http.state import state_of

_PRIVATE = {"Cache-Control": "no-store"}


class StreamTokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    pipeline_id: UUID | None
    """The pipeline whose stream the token opens; null: every stream."""
    ttl_seconds: float = Field(60, ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False)


class StreamToken(ResponseBody):
    token: str
    expires_at: datetime


class Me(ResponseBody):
    name: str | None
    """null: a token is required, and the request has none."""
    permissions: list[Permission]
    needs_token: bool


async def show_me(request: Request) -> JSONResponse:
    """Needs no token, so that a page can find out that it has to ask the user for one."""
    known = caller_if_known(request)
    permissions = sorted(known.permissions) if known else []
    needs_token = state_of(request).tokens.are_configured
    body = {"name": known.name if known else None, "permissions": permissions, "needs_token": needs_token}
    return JSONResponse(body, headers=_PRIVATE)


async def create_stream_token(request: Request) -> JSONResponse:
    body = await read_body(request, StreamTokenRequest)
    state = state_of(request)
    expires_at = await state.clock.now() + body.ttl_seconds
    token, grant = state.signer.sign(caller(request), body.pipeline_id, expires_at)
    expires = datetime.fromtimestamp(grant.expires_at, UTC).isoformat()
    return JSONResponse({"token": token, "expires_at": expires}, 201, headers=_PRIVATE)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/me",
        show_me,
        "Show the caller's name and permissions",
        None,
        {200: Me},
        dict.fromkeys((400, 401, 403), Problem),
    ),
    Endpoint(
        "POST",
        "/v1/stream-tokens",
        create_stream_token,
        "Create a short-lived token that opens streams",
        Permission.VIEW,
        {201: StreamToken},
        body=StreamTokenRequest,
    ),
)
