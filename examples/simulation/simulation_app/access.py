"""Who may do what: the tokens and permissions are those of reactor's HTTP API."""

from collections.abc import Callable
from typing import Literal

from fastapi import Request
from reactor_http.app import authorize


def allowed(permission: Literal["view", "submit", "operate"]) -> Callable[[Request], str]:
    """A dependency: the name of the caller, if their token has the permission."""

    def check(request: Request) -> str:
        return authorize(request.app.state.reactor, request, permission).name

    return check
