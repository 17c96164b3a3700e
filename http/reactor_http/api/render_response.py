"""Writes answers: JSON, where it is to be found, and whether it has changed."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

# Answers are for the one who asked, and of this moment.
_NOT_KEPT = {"Cache-Control": "no-store"}
_ASK_AGAIN = {"Cache-Control": "private, no-cache"}


def answer(content: Any, status: int = 200, *, location: str | None = None) -> Response:
    headers = _NOT_KEPT | ({"Location": location} if location else {})
    return Response(to_json(content, inf_nan_mode="null"), status, headers, "application/json")


def tagged(request: Request, body: bytes) -> Response:
    """With an ETag, and without a body for whoever has this very one already."""
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = _ASK_AGAIN | {"ETag": tag}
    known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    if "*" in known or tag in known or tag.removeprefix("W/") in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def joined(fields: Mapping[str, Any], stored: Mapping[str, str | Sequence[str] | None]) -> bytes:
    """One JSON object; what is `stored` is JSON already: text passed on as it is keeps every digit."""
    parts = [b"%s:%s" % (to_json(name), _as_stored(value)) for name, value in stored.items()]
    if fields:
        parts.insert(0, to_json(fields, inf_nan_mode="null")[1:-1])
    return b"{%s}" % b",".join(parts)


def address(request: Request, path: str, **query: Any) -> str:
    """Of something here, also where the application is mounted below a prefix."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    prefix: str = request.scope.get("root_path", "")
    return prefix.rstrip("/") + path + (f"?{urlencode(given)}" if given else "")


def _as_stored(value: str | Sequence[str] | None) -> bytes:
    if value is None:
        return b"null"
    return value.encode() if isinstance(value, str) else b"[%s]" % ",".join(value).encode()
