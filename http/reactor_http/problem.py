"""Error responses for programs and people: application/problem+json (RFC 9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response


class Problem(Exception):
    """Raised anywhere below an endpoint; the application turns it into the response."""

    def __init__(
        self,
        status: int,
        detail: str,
        remedy: str = "",
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        """`errors`: the invalid fields, each with `field` and `message`; `facts`: further members of the body."""
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
        self.body |= {"detail": detail} | ({"remedy": remedy} if remedy else {})
        self.body |= ({"errors": list(errors)} if errors else {}) | facts

    def response(self) -> Response:
        headers = {"Cache-Control": "no-store"} | self.headers
        return Response(to_json(self.body), self.status, headers, "application/problem+json")
