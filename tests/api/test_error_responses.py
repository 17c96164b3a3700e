"""Error responses: invalid requests and database errors become problems that a program can read."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from reactor_http.timings import Timings
from tests.support.http_app import make_app
from tests.support.until import until

WAITING = "from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
DEEP = '{"a":' * 5000 + "1" + "}" * 5000


def is_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["type"]) == (status, "about:blank")
    assert body["title"]
    assert body["detail"]
    return body


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_type", ""),
        ("job_type", " a"),
        ("job_type", "a\u0000"),
        ("job_type", "ä" * 101),
        ("job_type", None),
        ("job_type", 5),
        ("queue", "a\n"),
        ("priority", 1001),
        ("priority", -1001),
        ("priority", "1"),
        ("priority", True),
        ("priority", 0.5),
        ("payload", []),
        ("payload", {"a": "\u0000"}),
        ("payload", {"a": "x" * 1_000_000}),
        ("pipeline_id", "x"),
        ("run_after", "2026-01-01T00:00:00"),
        ("run_after", "soon"),
        ("run_after", 5),
        ("max_attempts", 0),
        ("max_attempts", 2**31),
        ("timeout_seconds", 0),
        ("timeout_seconds", -1),
        ("timeout_seconds", 1e300),
        ("tags", ["x"] * 51),
        ("tags", ["x" * 10_000]),
        ("tags", "x"),
        ("scope", ""),
        ("scope", "x" * 1001),
        ("idempotency_key", "\u007f"),
        ("exclusive", 1),
        ("state", "completed"),
        ("id", 5),
    ],
)
async def test_an_invalid_field_is_named(api: httpx.AsyncClient, field: str, value: Any) -> None:
    """J11, F1: rejected with the reason."""
    body = is_problem(await api.post("/v1/jobs", json={"job_type": "work"} | {field: value}), 422)
    [error] = body["errors"]
    assert error["field"].split("[")[0] == field
    assert error["message"]
    assert body["remedy"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
async def test_invalid_numbers_are_rejected(api: httpx.AsyncClient, number: str) -> None:
    content = f'{{"job_type": "work", "payload": {{"n": {number}}}}}'
    response = await api.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    is_problem(response, response.status_code)


async def test_exclusive_without_a_scope_is_rejected(api: httpx.AsyncClient) -> None:
    refused = is_problem(await api.post("/v1/jobs", json={"job_type": "a", "exclusive": True}), 422)
    [error] = refused["errors"]
    assert (error["field"], "requires a scope" in error["message"]) == ("exclusive", True)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1,", b'{"job_type": "\xff"}', b'\xef\xbb\xbf{"a":', b'{"job_type": "\\ud800"}', DEEP.encode()],
)
async def test_a_malformed_body_is_a_400(api: httpx.AsyncClient, content: bytes) -> None:
    response = await api.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert is_problem(response, 400)["remedy"]


async def test_json_other_than_an_object_is_rejected(api: httpx.AsyncClient) -> None:
    for content in ("[]", "5", "null", '"x"'):
        response = await api.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        is_problem(response, 422)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_other_content_types_are_rejected(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    is_problem(await api.post("/v1/jobs", content=b'{"job_type": "a"}', headers=headers), 415)


async def test_a_content_type_with_charset_utf_8_is_accepted(api: httpx.AsyncClient) -> None:
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert (await api.post("/v1/jobs", content=b'{"job_type": "a"}', headers=headers)).status_code == 202


@pytest.mark.parametrize(
    ("size", "headers", "least", "most"),
    [
        (9, {"Content-Length": str(9 * 2**20)}, 9, 9),
        (9, {"Content-Length": str(9 * 2**20), "Expect": "100-continue"}, 0, 0),
        (9, {}, 9, 9),
        (64, {"Content-Length": str(64 * 2**20)}, 0, 0),
        (64, {}, 0, 34),
    ],
    ids=["large", "large, with Expect", "large in pieces", "huge", "huge in pieces"],
)
async def test_a_body_that_is_too_large_is_a_413_that_clients_can_read(
    api: httpx.AsyncClient, size: int, headers: dict[str, str], least: int, most: int
) -> None:
    """Many clients read no response before they have sent everything; the server does not read without a limit."""
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(size):
            sent += 1
            yield b" " * 2**20

    response = await api.post("/v1/jobs", content=pieces(), headers={"Content-Type": "application/json"} | headers)
    assert "8 MiB" in is_problem(response, 413)["detail"]
    assert least <= sent <= most


async def test_eight_megabytes_of_jobs_are_accepted(api: httpx.AsyncClient) -> None:
    jobs = [{"job_type": "a", "payload": {"x": "y" * 990_000}} for _ in range(8)]
    assert (await api.post("/v1/pipelines", json={"jobs": jobs})).status_code == 202


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs?limit=0",
        "/v1/jobs?limit=1001",
        "/v1/jobs?limit=x",
        "/v1/jobs?before=9223372036854775808",
        "/v1/jobs?state=lost",
        "/v1/jobs?state=failed&state=running",
        "/v1/jobs?stat=failed",
        "/v1/jobs?tag=%00",
        "/v1/jobs?pipeline_id=5",
        "/v1/pipelines?q=%00",
        "/v1/pipelines?state=pending",
        "/v1/jobs/x",
        "/v1/jobs/0",
        "/v1/jobs/9223372036854775808",
        "/v1/jobs/1_0",
        "/v1/jobs/-1/why",
        "/v1/pipelines/5",
    ],
)
async def test_an_invalid_url_parameter_is_named(api: httpx.AsyncClient, path: str) -> None:
    [error] = is_problem(await api.get(path), 422)["errors"]
    assert error["field"] in ("limit", "before", "state", "stat", "tag", "q", "job_id", "pipeline_id")


async def test_a_url_that_repeats_a_parameter_is_rejected_quickly(api: httpx.AsyncClient) -> None:
    began = time.monotonic()
    problem = is_problem(await api.get("/v1/jobs?" + "&".join(["a"] * 30_000)), 422)
    assert problem["errors"] == [{"field": "a", "message": "is given more than once"}]
    assert time.monotonic() - began < 20, "a search of all parameters for each one took a minute"


async def test_thousands_of_invalid_fields_are_only_counted(api: httpx.AsyncClient) -> None:
    body = {"job_type": "work"} | {f"x{number}": 1 for number in range(20_000)}
    problem = is_problem(await api.post("/v1/jobs", json=body), 422)
    assert (problem["detail"], "errors" in problem) == ("20,000 fields are invalid.", False)


async def test_too_many_dependencies_are_rejected_before_validation(api: httpx.AsyncClient) -> None:
    jobs = [{"job_type": "work", "depends_on": [1] * 10_000} for _ in range(400)]
    began = time.monotonic()
    problem = is_problem(await api.post("/v1/pipelines", json={"jobs": jobs}), 422)
    assert problem["errors"] == [
        {"field": "jobs", "message": "have 4,000,000 dependencies in all; the limit is 100,000"}
    ]
    assert time.monotonic() - began < 30, "validating all of them took a minute and gigabytes"


async def test_unknown_paths_ids_and_methods_are_problems(api: httpx.AsyncClient) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    for path in (
        "/v1/jobs/5",
        "/v1/jobs/5/why",
        f"/v1/pipelines/{unknown}",
        "/v1/nothing",
        "/v1/jobs/5/nothing",
        "/%00",
    ):
        is_problem(await api.get(path), 404)
    for path in (
        "jobs/5/cancel",
        "jobs/5/retry",
        "jobs/5/recover",
        f"pipelines/{unknown}/cancel",
        f"pipelines/{unknown}/retry",
    ):
        is_problem(await api.post(f"/v1/{path}"), 404)
    wrong = await api.delete("/v1/jobs")
    is_problem(wrong, 405)
    assert sorted(wrong.headers["allow"].split(", ")) == ["GET", "HEAD", "POST"]
    is_problem(await api.put("/v1/drain"), 405)


async def test_an_internal_error_is_a_500_without_details(api: httpx.AsyncClient, app: Starlette) -> None:
    async def broken(request: Request) -> Response:
        raise RuntimeError("secret")

    app.router.routes.insert(0, Route("/broken", broken))
    response = await api.get("/broken")
    assert "secret" not in json.dumps(is_problem(response, 500))
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_an_unreachable_database_is_a_503_until_it_is_back(folder: Path) -> None:
    """J11: database down: 503, while the process stays live. The response does not contain the database's address."""
    with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
        url = server.url()
        await migrate(url)
        app = make_app(url)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as api:
            assert (await api.get("/v1/jobs")).status_code == 200
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as api:
            started = asyncio.get_running_loop().time()
            for _ in range(2):
                refused = await api.get("/v1/jobs")
                body = is_problem(refused, 503)
                assert int(refused.headers["retry-after"]) > 0
                assert str(folder) not in json.dumps(body)
            assert asyncio.get_running_loop().time() - started < 10
            is_problem(await api.post("/v1/jobs", json={"job_type": "a"}), 503)
            assert (await api.get("/health/live")).status_code == 200
            with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
                assert server.url() == url
                assert (await api.post("/v1/jobs", json={"job_type": "a"})).status_code == 202
    finally:
        await app.state.reactor.close()
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_connection_lost_during_a_request_is_a_503(
    api: httpx.AsyncClient, connection: Connection, database: str
) -> None:
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("lock table reactor.jobs in access exclusive mode")
        asking = asyncio.create_task(api.get("/v1/jobs"))
        await until(lambda: connection.fetchval(f"select pg_terminate_backend(pid) {WAITING}"))
        is_problem(await asking, 503)
    assert (await api.get("/v1/jobs")).status_code == 200


async def test_an_exhausted_pool_is_a_503(
    api: httpx.AsyncClient, app: Starlette, connection: Connection, database: str
) -> None:
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("lock table reactor.jobs in access exclusive mode")
        others = [asyncio.create_task(api.get("/v1/jobs")) for _ in range(10)]
        try:
            await until(lambda: _is(connection, f"select count(*) {WAITING}", 10))
            app.state.reactor.timings = Timings(connect_seconds=0.2)
            is_problem(await api.get("/v1/jobs"), 503)
        finally:
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def test_a_slow_request_times_out_and_is_cancelled_on_the_server(
    api: httpx.AsyncClient, app: Starlette, database: str, connection: Connection
) -> None:
    patient = app.state.reactor.timings
    app.state.reactor.timings = replace(patient, request_seconds=0.3)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("lock table reactor.jobs in access exclusive mode")
        refused = await api.get("/v1/jobs")
        is_problem(refused, 503)
        assert refused.headers["retry-after"]
        active = (
            "select count(*) from pg_stat_activity where application_name = 'reactor http' and state = 'active'"
            " and datname = current_database()"
        )
        await until(lambda: _is(connection, active, 0))
    app.state.reactor.timings = patient
    assert (await api.get("/v1/jobs")).status_code == 200


async def _is(connection: Connection, query: str, number: int) -> bool:
    return bool(await connection.fetchval(query) == number)


async def test_a_database_without_the_schema_suggests_to_migrate(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    await connection.execute("alter schema reactor rename to elsewhere")
    assert "reactor migrate" in is_problem(await api.get("/v1/jobs"), 503)["remedy"]


async def test_a_server_with_a_read_only_role_returns_403_for_writes(
    api: httpx.AsyncClient, connection: Connection, database: str
) -> None:
    name = await connection.fetchval("select current_database()")
    await connection.execute(f'alter database "{name}" set role reactor_viewer')
    assert (await api.get("/v1/jobs")).status_code == 200
    assert "reactor_worker" in is_problem(await api.post("/v1/jobs", json={"job_type": "a"}), 403)["remedy"]
