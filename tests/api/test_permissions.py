"""Which callers every endpoint admits."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from enum import Enum, auto
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route

from reactor.database.connection import Connection
from reactor.settings import read_settings
from reactor_http.api.access import Permission
from tests.support.http_app import make_app
from tests.support.jobs import insert


class Open(Enum):
    """What an endpoint needs that needs no permission of a bearer token."""

    TO_ALL = auto()
    TO_STREAM = auto()
    """The permission to view, or a stream token for the pipeline or for all."""
    TO_STREAM_ALL = auto()
    """The permission to view, or a stream token for all."""


VIEW, SUBMIT, OPERATE = Permission.VIEW, Permission.SUBMIT, Permission.OPERATE
NEEDS: dict[str, Permission | Open] = {
    "GET /": Open.TO_ALL,
    "GET /health/live": Open.TO_ALL,
    "GET /health/ready": Open.TO_ALL,
    "GET /openapi.json": Open.TO_ALL,
    "GET /metrics": VIEW,
    "GET /v1/me": Open.TO_ALL,
    "POST /v1/stream-tokens": VIEW,
    "GET /v1/events": Open.TO_STREAM_ALL,
    "GET /v1/pipelines/{pipeline_id}/events": Open.TO_STREAM,
    "POST /v1/jobs": SUBMIT,
    "GET /v1/jobs": VIEW,
    "GET /v1/jobs/{job_id}": VIEW,
    "GET /v1/jobs/{job_id}/why": VIEW,
    "GET /v1/jobs/{job_id}/logs": VIEW,
    "POST /v1/jobs/{job_id}/cancel": OPERATE,
    "POST /v1/jobs/{job_id}/retry": OPERATE,
    "POST /v1/jobs/{job_id}/recover": OPERATE,
    "POST /v1/pipelines": SUBMIT,
    "GET /v1/pipelines": VIEW,
    "GET /v1/pipelines/{pipeline_id}": VIEW,
    "POST /v1/pipelines/{pipeline_id}/cancel": OPERATE,
    "POST /v1/pipelines/{pipeline_id}/retry": OPERATE,
    "GET /v1/workers": VIEW,
    "GET /v1/job-types": VIEW,
    "GET /v1/job-types/{job_type:path}": VIEW,
    "GET /v1/queues": VIEW,
    "POST /v1/queues/{queue:path}/pause": OPERATE,
    "POST /v1/queues/{queue:path}/resume": OPERATE,
    "GET /v1/drain": VIEW,
    "POST /v1/drain": OPERATE,
    "GET /v1/limits": VIEW,
    "POST /v1/limits": OPERATE,
    "POST /v1/limits/remove": OPERATE,
    "GET /v1/schedules": VIEW,
    "GET /v1/stats": VIEW,
    "GET /v1/stats/history": VIEW,
}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/stream-tokens": {"pipeline_id": None},
    "POST /v1/jobs": {"job_type": "work"},
    "POST /v1/pipelines": {"jobs": [{"job_type": "work"}]},
    "POST /v1/drain": {"on": False},
    "POST /v1/limits": {"queue": "default", "max_running": 5},
    "POST /v1/limits/remove": {"queue": "default"},
}

TOKENS = {str(permission): f"reactor_{str(permission)[0] * 43}" for permission in Permission}
SETTINGS = {
    "REACTOR_TOKENS": " ".join(
        f"{name}:{name}:{hashlib.sha256(token.encode()).hexdigest()}" for name, token in TOKENS.items()
    ),
    "REACTOR_SECRET": "of all pods of this test " * 2,
}
ADMITTED: dict[Permission | Open, set[str]] = {
    VIEW: {"view"},
    SUBMIT: {"submit"},
    OPERATE: {"operate"},
    Open.TO_STREAM: {"view", "stream token", "stream token for all"},
    Open.TO_STREAM_ALL: {"view", "stream token for all"},
    Open.TO_ALL: {
        "nobody",
        "view",
        "submit",
        "operate",
        "stream token",
        "stream token for another",
        "stream token for all",
    },
}
REFUSED = (401, 403)


@pytest.fixture
async def guarded(database: str) -> AsyncIterator[Starlette]:
    """The application with a token for each permission."""
    app = make_app(database, read_settings(SETTINGS))
    yield app
    await app.state.reactor.close()


@pytest.fixture
async def requests(connection: Connection) -> list[tuple[str, str, str]]:
    """A valid request for each entry of the table: the entry, its method and its path. HEAD needs what GET needs."""
    job_id = await insert(connection)
    pipeline = await pipeline_of(connection)
    await connection.execute(
        "insert into reactor.job_types (name, delivery, is_checked, version) values ('work', 'at_least_once', true, '')"
    )
    named = {"job_id": job_id, "pipeline_id": pipeline, "queue:path": "default", "job_type:path": "work"}
    found = []
    for endpoint in NEEDS:
        method, path = endpoint.split()
        for name, value in named.items():
            path = path.replace("{" + name + "}", str(value))
        found += [(endpoint, each, path) for each in ((method, "HEAD") if method == "GET" else (method,))]
    return found


async def pipeline_of(connection: Connection) -> UUID:
    pipeline: UUID = await connection.fetchval("select pipeline_id from reactor.jobs order by id limit 1")
    return pipeline


def declared(app: Starlette) -> list[str]:
    """All that the application answers, by its routes. Those of the API accept every method and dispatch by it."""
    methods: dict[str, list[str]] = {}
    for endpoint in app.state.endpoints:
        methods.setdefault(endpoint.path, []).append(endpoint.method)

    def of(route: BaseRoute) -> list[str]:
        assert isinstance(route, Route | Mount), route
        known = route.methods if isinstance(route, Route) else {"GET"}
        names = methods[route.path] if known is None else known - {"HEAD"}
        return [f"{name} {route.path or '/'}" for name in names]

    return [name for route in app.routes for name in of(route)]


async def stream_token(app: Starlette, pipeline_id: UUID | None) -> str:
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {TOKENS['view']}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        made = await client.post("/v1/stream-tokens", json={"pipeline_id": pipeline_id and str(pipeline_id)})
    token: str = made.json()["token"]
    return token


async def status_of(
    app: Starlette, method: str, path: str, body: object = None, *, token: str = "", query: str = "", **scope: Any
) -> int:
    """The status of a response, of which no more is read: a stream has no end."""
    content = json.dumps(body).encode() if body is not None else b""
    headers = [(b"host", b"localhost"), (b"content-length", b"%d" % len(content))]
    headers += [(b"content-type", b"application/json")] if content else []
    headers += [(b"authorization", b"Bearer " + token.encode())] if token else []
    messages = [{"type": "http.request", "body": content, "more_body": False}]
    status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.wait({status})
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.set_result(message["status"])

    request = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8080),
    }
    await app(request | scope, receive, send)
    return status.result()


def test_every_endpoint_has_an_entry_in_the_table_of_permissions() -> None:
    """D13"""
    app = make_app("postgresql://nobody@127.0.0.1:1/nothing")
    assert sorted(declared(app)) == sorted(NEEDS)


async def test_every_endpoint_admits_only_callers_with_its_permission(
    guarded: Starlette, connection: Connection, requests: list[tuple[str, str, str]]
) -> None:
    """D13: no permission includes another, and a stream token opens streams only."""
    pipeline = await pipeline_of(connection)
    callers = {name: {"token": token} for name, token in TOKENS.items()} | {"nobody": {}}
    for name, scope in {"": pipeline, " for another": uuid4(), " for all": None}.items():
        callers[f"stream token{name}"] = {"query": urlencode({"token": await stream_token(guarded, scope)})}
    assert callers.keys() == ADMITTED[Open.TO_ALL]
    statuses = {
        (endpoint, method, caller): await status_of(guarded, method, path, BODIES.get(endpoint), **credentials)
        for caller, credentials in callers.items()
        for endpoint, method, path in requests
    }
    admitted = {request for request, status in statuses.items() if status not in REFUSED}
    assert admitted == {
        (endpoint, method, caller) for endpoint, method, _ in requests for caller in ADMITTED[NEEDS[endpoint]]
    }
    # Otherwise the requests might have been refused for another reason.
    assert {status for status in statuses.values() if status not in REFUSED} <= {200, 201, 202, 409}


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1"])
async def test_without_tokens_every_endpoint_admits_callers_of_this_machine_only(
    app: Starlette, requests: list[tuple[str, str, str]], address: str
) -> None:
    """D13: they have all permissions."""
    statuses = {
        (endpoint, method): await status_of(app, method, path, BODIES.get(endpoint), client=(address, 5000))
        for endpoint, method, path in requests
    }
    admitted = {endpoint for (endpoint, _), status in statuses.items() if status not in REFUSED}
    to_all = {endpoint for endpoint, needed in NEEDS.items() if needed is Open.TO_ALL} - {"GET /v1/me"}
    assert admitted == (NEEDS.keys() if address == "127.0.0.1" else to_all)
