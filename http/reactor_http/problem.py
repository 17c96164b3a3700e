"""Refusals that a program can read and a person understand: application/problem+json (RFC 9457)."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse


class Problem(Exception):
    """Raised anywhere below an endpoint; the application turns it into the answer."""

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
        """`errors`: the fields that are wrong, each with `field` and `message`; `facts`: further members."""
        super().__init__(detail)
        self.status = status
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
        self.body |= {"detail": detail} | ({"remedy": remedy} if remedy else {})
        self.body |= ({"errors": list(errors)} if errors else {}) | facts

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers, media_type="application/problem+json")
