"""Writes JSON responses: bodies, ETags and links."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

NO_STORE = {"Cache-Control": "no-store"}
_REVALIDATE = {"Cache-Control": "private, no-cache"}


def json_response(content: Any, status: int = 200, *, location: str | None = None) -> Response:
    headers = NO_STORE | ({"Location": location} if location else {})
    return Response(to_json(content, inf_nan_mode="null"), status, headers, "application/json")


def response_with_etag(request: Request, body: bytes, version: str) -> Response:
    """304 without a body if the client already has this version. (Not a hash of the body, in which time passes.)"""
    tag = f'W/"{version}"'
    headers = _REVALIDATE | {"ETag": tag}
    known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    if "*" in known or tag in known or tag.removeprefix("W/") in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def join_json(fields: Mapping[str, Any], stored: Mapping[str, str | Sequence[str] | None]) -> bytes:
    """One JSON object. Values in `stored` are JSON text already, and are passed on as they are to keep every digit."""
    parts = [b"%s:%s" % (to_json(name), _stored_json(value)) for name, value in stored.items()]
    if fields:
        parts.insert(0, to_json(fields, inf_nan_mode="null")[1:-1])
    return b"{%s}" % b",".join(parts)


def url_of(request: Request, path: str, **query: Any) -> str:
    """The URL of a path of this application, including the prefix that it is mounted at."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    prefix: str = request.scope.get("root_path", "")
    return prefix.rstrip("/") + path + (f"?{urlencode(given)}" if given else "")


def _stored_json(value: str | Sequence[str] | None) -> bytes:
    if value is None:
        return b"null"
    return value.encode() if isinstance(value, str) else b"[%s]" % ",".join(value).encode()
