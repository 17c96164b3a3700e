"""Calls reactor's HTTP API, which is mounted in this application, with the token of the caller."""

from typing import Any

import httpx
from fastapi import Request, Response
from starlette.applications import Starlette


class Refused(Exception):
    """A response with an error: 404, 409, 503, … with what happened and what to do."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.text)
        self.response = response


class ReactorApi:
    def __init__(self, application: Starlette) -> None:
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(application, raise_app_exceptions=False), base_url="http://127.0.0.1"
        )

    async def get(self, request: Request, path: str, **query: Any) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        return checked(await self._client.get(path, params=given, headers=token_of(request))).json()

    async def post(self, request: Request, path: str, body: dict[str, Any]) -> httpx.Response:
        return checked(await self._client.post(path, json=body, headers=token_of(request)))

    async def health(self) -> httpx.Response:
        return await self._client.get("/health/ready")


def token_of(request: Request) -> dict[str, str]:
    return {"Authorization": request.headers["Authorization"]} if "Authorization" in request.headers else {}


def checked(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        raise Refused(response)
    return response


async def pass_on(request: Request, error: Exception) -> Response:
    """J6, J11: the caller gets reactor's own response, `application/problem+json`."""
    assert isinstance(error, Refused)
    return passed_on(error.response)


def passed_on(response: httpx.Response) -> Response:
    headers = {name: response.headers[name] for name in ("Content-Type", "Retry-After") if name in response.headers}
    return Response(response.content, response.status_code, headers)
