"""What callers ask about themselves: who they are here, and a token for a stream."""

from datetime import UTC, datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from reactor_http.access import caller, visitor
from reactor_http.edge import edge_of
from reactor_http.problem import Problem
from reactor_http.stream_token import LONGEST_SECONDS, SHORTEST_SECONDS

_MOST_BYTES = 4096
# What is answered here is for the one who asked.
_PRIVATE = {"Cache-Control": "no-store"}


class StreamTokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pipeline_id: UUID | None = Field(description="the pipeline whose stream it opens; null: all streams")
    ttl_seconds: float = Field(60, ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False)


async def me(request: Request) -> JSONResponse:
    """Answers also those who have no token, so that a page learns that it has to ask for one."""
    found = visitor(request)
    permissions = sorted(found.permissions) if found else []
    needs_token = edge_of(request).tokens.are_configured
    answer = {"name": found.name if found else None, "permissions": permissions, "needs_token": needs_token}
    return JSONResponse(answer, headers=_PRIVATE)


async def stream_tokens(request: Request) -> JSONResponse:
    wanted = await _wanted(request)
    signer = edge_of(request).signer
    token, grant = signer.sign(caller(request).name, wanted.pipeline_id, wanted.ttl_seconds)
    expires_at = datetime.fromtimestamp(grant.expires_at, UTC).isoformat()
    return JSONResponse({"token": token, "expires_at": expires_at}, 201, headers=_PRIVATE)


async def _wanted(request: Request) -> StreamTokenRequest:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise Problem(413, f"The body is larger than {_MOST_BYTES} bytes.")
    try:
        return StreamTokenRequest.model_validate_json(bytes(body))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)
    if wrong[0]["type"] == "json_invalid":
        raise Problem(400, "The body is not JSON.", 'Send {"pipeline_id": "…"}, or {"pipeline_id": null} for all.')
    fields = [{"field": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in wrong]
    raise Problem(422, "The body does not fit.", errors=fields)
