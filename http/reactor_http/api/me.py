"""What callers ask about themselves: who they are here, and a token for a stream."""

from datetime import UTC, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor_http.api.access import Permission, caller, visitor
from reactor_http.api.endpoint import Call
from reactor_http.api.read_request import read_body
from reactor_http.api.responses import Answer, Problem
from reactor_http.auth.stream_token import LONGEST_SECONDS, SHORTEST_SECONDS
from reactor_http.state import edge_of

# What is answered here is for the one who asked.
_PRIVATE = {"Cache-Control": "no-store"}


class StreamTokenAsked(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    pipeline_id: UUID | None
    """The pipeline whose stream it opens; null: every stream."""
    ttl_seconds: float = Field(60, ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False)


class StreamToken(Answer):
    token: str
    expires_at: datetime


class Me(Answer):
    name: str | None
    """null: a token is needed, and none was sent."""
    permissions: list[Permission]
    needs_token: bool


async def me(request: Request) -> JSONResponse:
    """Answers also those who have no token, so that a page learns that it has to ask for one."""
    found = visitor(request)
    permissions = sorted(found.permissions) if found else []
    needs_token = edge_of(request).tokens.are_configured
    answer = {"name": found.name if found else None, "permissions": permissions, "needs_token": needs_token}
    return JSONResponse(answer, headers=_PRIVATE)


async def stream_tokens(request: Request) -> JSONResponse:
    asked = await read_body(request, StreamTokenAsked)
    edge = edge_of(request)
    expires_at = await edge.clock.now() + asked.ttl_seconds
    token, grant = edge.signer.sign(caller(request), asked.pipeline_id, expires_at)
    said = datetime.fromtimestamp(grant.expires_at, UTC).isoformat()
    return JSONResponse({"token": token, "expires_at": said}, 201, headers=_PRIVATE)


CALLS = (
    Call("GET", "/v1/me", me, "Who you are here", None, {200: Me}, dict.fromkeys((400, 401, 403), Problem)),
    Call(
        "POST",
        "/v1/stream-tokens",
        stream_tokens,
        "A short-lived token that opens streams",
        Permission.VIEW,
        {201: StreamToken},
        body=StreamTokenAsked,
    ),
)
