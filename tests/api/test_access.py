"""Access to the API: tokens, permissions, stream tokens, origins, and the errors for each."""

import asyncio
import hashlib
import hmac
import json
import socket
import string
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from reactor.database.connection import Connection
from reactor.errors import SettingsInvalid
from reactor.settings import read_settings
from reactor_http.api.access import Caller, Permission, authorize_stream, operator, require
from reactor_http.app import authorize
from reactor_http.auth.stream_token import BadStreamToken, Signer
from reactor_http.auth.tokens import Tokens, make_token
from reactor_http.database_clock import DatabaseClock
from tests.support.http_app import make_app

SECRET = "of all pods of this test " * 2
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
# Constant, because test ids must be the same in every process that runs them.
VIEWER, SUBMITTER, OPERATOR = ("reactor_" + letter * 43 for letter in "vso")
VIEWER_ENTRY, SUBMITTER_ENTRY, OPERATOR_ENTRY = (
    f"{entry}:{hashlib.sha256(token.encode()).hexdigest()}"
    for entry, token in (("vera:view", VIEWER), ("sam:submit", SUBMITTER), ("olga:view+submit+operate", OPERATOR))
)
ENTRIES = f"{VIEWER_ENTRY}, {SUBMITTER_ENTRY} {OPERATOR_ENTRY}"
PIPELINE = uuid4()


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 1000.0

    async def now(self) -> float:
        return self.time


def app_with(url: str = NOWHERE, **settings: str) -> Starlette:
    """The application with these settings, and further paths that return the caller.

    Without a database it gets a manual clock.
    """
    named = {f"REACTOR_{name.upper()}": value for name, value in settings.items()}
    app = make_app(url, read_settings(named))
    if url == NOWHERE:
        app.state.reactor.clock = ManualClock()

    async def who(request: Request) -> JSONResponse:
        return JSONResponse({"who": operator(request).who, "from": operator(request).came_from})

    async def pipeline_stream(request: Request) -> JSONResponse:
        found = await authorize_stream(request, UUID(request.path_params["id"]))
        return JSONResponse({"who": found.name, "may": sorted(found.permissions)})

    async def all_streams(request: Request) -> JSONResponse:
        return JSONResponse({"who": (await authorize_stream(request, None)).name})

    app.router.routes[:0] = [
        *(Route(f"/may/{p}", require(p, who), methods=["GET", "POST"]) for p in Permission),
        Route("/streams/{id}", pipeline_stream),
        Route("/streams", all_streams),
    ]
    return app


def client_of(
    app: Any, token: str | None = None, address: str = "127.0.0.1", base: str = "http://127.0.0.1:8080"
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 5000))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url=base, headers=headers)


def problem_detail(response: httpx.Response, status: int) -> str:
    """The detail of an error response, which must not contain a token."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    for secret in (VIEWER, SUBMITTER, OPERATOR):
        assert secret not in response.text
    if status == 401:
        assert response.headers["www-authenticate"].startswith("Bearer")
    detail: str = response.json()["detail"]
    return detail


# Bearer tokens


async def test_a_token_grants_the_permissions_of_its_entry() -> None:
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        assert (await client.get("/may/view")).json()["who"] == "vera"
        detail = problem_detail(await client.get("/may/operate"), 403)
        assert "operate" in detail
        assert "vera" in detail
        assert (await client.get("/may/submit")).json()["missing"] == "submit"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/pipelines"])
async def test_a_job_says_which_token_submitted_it_and_on_whose_behalf(
    database: str, connection: Connection, path: str
) -> None:
    """F2: a caller can't hide its own name."""
    app = app_with(database, tokens=ENTRIES)
    async with client_of(app, SUBMITTER) as client:
        for more in ({}, {"submitted_by": "alice"}):
            job = {"job_type": "work"} | more
            sent = job if path == "/v1/jobs" else {"jobs": [job]}
            assert (await client.post(path, json=sent)).status_code == 202
    stored = await connection.fetch("select id, submitted_by from reactor.jobs order by id")
    assert [row["submitted_by"] for row in stored] == ["sam", "alice via sam"]
    async with client_of(app, VIEWER) as client:
        assert (await client.get(f"/v1/jobs/{stored[1]['id']}")).json()["submitted_by"] == "alice via sam"
    await app.state.reactor.close()


async def test_a_job_that_names_nobody_was_submitted_by_its_database_role(
    database: str, connection: Connection
) -> None:
    await connection.execute("insert into reactor.jobs (job_type) values ('work')")
    app = app_with(database)
    async with client_of(app) as client:
        assert (await client.post("/v1/jobs", json={"job_type": "work", "submitted_by": "alice"})).status_code == 202
        jobs = [(await client.get(f"/v1/jobs/{number}")).json() for number in (1, 2)]
    await app.state.reactor.close()
    role = await connection.fetchval("select current_user")
    assert [(job["submitted_by"], job["meta"]) for job in jobs] == [(role, {}), ("alice", {})]


async def test_requests_without_a_token_get_401() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        for path in ("/may/view", "/may/submit", "/may/operate", "/streams", f"/streams/{PIPELINE}"):
            assert "token is required" in problem_detail(await client.get(path), 401)
        problem_detail(await client.post("/v1/stream-tokens", json={"pipeline_id": None}), 401)


async def test_health_checks_and_the_page_need_no_token() -> None:
    async with client_of(app_with(tokens=ENTRIES), base="http://elsewhere.example") as client:
        assert (await client.get("/health/live")).status_code == 200
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Bearer unknown",
        f"Bearer {VIEWER}x",
        f"Bearer {VIEWER[:-1]}",
        f"Bearer {VIEWER} {VIEWER}",
        f"Bearer {VIEWER_ENTRY.rsplit(':')[-1]}",
        f"Basic {VIEWER}",
        VIEWER,
        "Bearer " + "x" * 100_000,
        "Bearer töken".encode("latin-1"),
        "Bearer ✓".encode(),
        b"Bearer \x00\x01\xff",
        b"Bearer " + VIEWER.encode() + b"\x00",
    ],
)
async def test_an_unknown_or_malformed_token_is_rejected(header: str | bytes) -> None:
    headers = [(b"Authorization", header.encode() if isinstance(header, str) else header)]
    async with client_of(app_with(tokens=ENTRIES)) as client:
        problem_detail(await client.get("/may/view", headers=headers), 401)
        problem_detail(await client.get("/v1/me", headers=headers), 401)
        problem_detail(await client.get("/streams", headers=headers), 401)


async def test_two_authorization_headers_are_rejected() -> None:
    twice = [("Authorization", f"Bearer {VIEWER}")] * 2
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert "more than one" in problem_detail(await client.get("/may/view", headers=twice), 400)


async def test_the_bearer_scheme_is_case_insensitive() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert (await client.get("/may/view", headers={"Authorization": f"bearer {VIEWER}"})).status_code == 200


def test_find_compares_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration must not reveal how close a guess is to an entry."""
    tokens = Tokens(read_settings({"REACTOR_TOKENS": ENTRIES}))
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def recording(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return compare(known, given)

    monkeypatch.setattr("hmac.compare_digest", recording)
    for token in (VIEWER, SUBMITTER, OPERATOR, "unknown"):
        compared.clear()
        tokens.find(token)
        assert len(compared) == 3


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (" , ", "contains no token"),
        (VIEWER, "NAME:PERMISSION"),
        (f"vera:view:{VIEWER}", "SHA-256"),
        (VIEWER_ENTRY.replace("view", "fly"), "unknown permission; the permissions are view, submit, operate"),
        (VIEWER_ENTRY.replace("view", ""), "NAME:PERMISSION"),
        (VIEWER_ENTRY.replace("vera", "ve ra"), "NAME:PERMISSION"),
        (f"{VIEWER_ENTRY},{VIEWER_ENTRY}", "listed twice"),
    ],
)
def test_invalid_entries_stop_the_start_and_are_not_shown(entries: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=message) as caught:
        app_with(tokens=entries)
    assert VIEWER not in str(caught.value)
    assert "REACTOR_TOKENS" in str(caught.value)


# The tokens file


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def write(file: Path, content: str | bytes) -> None:
    """Replaces the file, as a Kubernetes volume does."""
    new = file.with_suffix(".new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    write(file, f"# the team's tokens\n{VIEWER_ENTRY}  # since spring\n\n{SUBMITTER_ENTRY}\n")
    return file


def test_a_changed_tokens_file_takes_effect_without_a_restart(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    found = tokens.find(VIEWER)
    assert found is not None
    assert found.name == "vera"
    assert tokens.find(OPERATOR) is None
    write(file, OPERATOR_ENTRY)
    clock.now += 1
    assert tokens.find(OPERATOR) is not None
    assert tokens.find(VIEWER) is None


def test_a_tokens_file_is_checked_at_most_once_a_second(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    write(file, OPERATOR_ENTRY)
    clock.now += 0.9
    assert tokens.find(VIEWER) is not None


@pytest.mark.parametrize("broken", [f"{OPERATOR_ENTRY}\nvera:vi", b"\xff\xfe", b"\x00", "x" * 1_000_001, None], ids=str)
def test_an_invalid_tokens_file_keeps_the_previous_tokens(file: Path, broken: str | bytes | None) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    file.unlink() if broken is None else write(file, broken)
    clock.now += 1
    with structlog.testing.capture_logs() as events:
        assert tokens.find(VIEWER) is not None
        assert tokens.find(OPERATOR) is None
    assert [event["log_level"] for event in events] == ["error"]
    write(file, OPERATOR_ENTRY)
    clock.now += 1
    assert tokens.find(OPERATOR) is not None


def test_an_emptied_tokens_file_rejects_all_tokens(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    write(file, "# all revoked\n")
    clock.now += 1
    assert tokens.find(VIEWER) is None
    assert tokens.are_configured


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), ("", "contains no token"), ("vera", "line 1"), (f"\n{VIEWER_ENTRY}x", "line 2")],
)
def test_an_invalid_tokens_file_stops_the_start(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsInvalid, match=message):
        app_with(tokens_file=str(file))


def test_tokens_of_the_file_and_of_the_variable_add_up(file: Path) -> None:
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file), "REACTOR_TOKENS": OPERATOR_ENTRY}))
    assert tokens.find(VIEWER)
    assert tokens.find(OPERATOR)


# GET /v1/me


async def test_me_shows_the_tokens_name_and_permissions() -> None:
    async with client_of(app_with(tokens=ENTRIES), SUBMITTER) as client:
        assert (await client.get("/v1/me")).json() == {"name": "sam", "permissions": ["submit"], "needs_token": True}


async def test_me_without_a_token_says_that_one_is_required() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert (await client.get("/v1/me")).json() == {"name": None, "permissions": [], "needs_token": True}


async def test_me_says_when_no_token_is_required() -> None:
    async with client_of(app_with()) as client:
        response = (await client.get("/v1/me")).json()
    assert response == {"name": "anonymous", "permissions": ["operate", "submit", "view"], "needs_token": False}


# Stream tokens


async def mint(app: Starlette, pipeline_id: UUID | None = PIPELINE, **more: Any) -> str:
    async with client_of(app, VIEWER) as client:
        wanted = {"pipeline_id": str(pipeline_id) if pipeline_id else None} | more
        response = await client.post("/v1/stream-tokens", json=wanted)
    assert response.status_code == 201, response.text
    token: str = response.json()["token"]
    return token


async def test_a_stream_token_opens_its_pipelines_stream_and_nothing_else() -> None:
    app = app_with(tokens=ENTRIES, secret=SECRET)
    token = await mint(app)
    async with client_of(app) as client:
        response = await client.get(f"/streams/{PIPELINE}", params={"token": token})
        assert response.json() == {"who": "vera", "may": ["view"]}
        assert "another pipeline" in problem_detail(
            await client.get(f"/streams/{uuid4()}", params={"token": token}), 403
        )
        assert "all" in problem_detail(await client.get("/streams", params={"token": token}), 403)
        problem_detail(await client.get("/may/view", params={"token": token}), 401)
        problem_detail(await client.get("/may/view", headers={"Authorization": f"Bearer {token}"}), 401)


async def test_a_stream_token_for_all_opens_every_stream() -> None:
    app = app_with(tokens=ENTRIES, secret=SECRET)
    token = await mint(app, None)
    async with client_of(app) as client:
        assert (await client.get("/streams", params={"token": token})).json() == {"who": "vera"}
        assert (await client.get(f"/streams/{uuid4()}", params={"token": token})).status_code == 200


async def test_a_bearer_token_with_view_opens_streams_too() -> None:
    app = app_with(tokens=ENTRIES)
    async with client_of(app, VIEWER) as client:
        assert (await client.get("/streams", params={"token": "whatever"})).json() == {"who": "vera"}
    async with client_of(app, SUBMITTER) as client:
        assert "view" in problem_detail(await client.get("/streams"), 403)
    async with client_of(app) as client:
        problem_detail(await client.get("/streams", params={"token": VIEWER}), 401)


async def test_pods_with_the_same_secret_accept_each_others_stream_tokens() -> None:
    token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        assert (await client.get(f"/streams/{PIPELINE}", params={"token": token})).status_code == 200
    for other in ({"secret": SECRET + "!"}, {}):
        async with client_of(app_with(tokens=ENTRIES, **other)) as client:
            detail = problem_detail(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)
            assert "REACTOR_SECRET" in detail


async def test_a_stream_token_expires() -> None:
    app = app_with(tokens=ENTRIES, secret=SECRET)
    clock = app.state.reactor.clock
    token = await mint(app, ttl_seconds=5)
    async with client_of(app) as client:
        clock.time += 4.9
        assert (await client.get(f"/streams/{PIPELINE}", params={"token": token})).status_code == 200
        clock.time += 0.2
        assert "expired" in problem_detail(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)


async def test_a_stream_token_expires_by_the_databases_clock(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods with different clocks must agree on it."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    app = app_with(database, tokens=ENTRIES, secret=SECRET)
    earliest = await connection.fetchval("select clock_timestamp()")
    async with client_of(app, VIEWER) as client:
        response = await client.post("/v1/stream-tokens", json={"pipeline_id": None, "ttl_seconds": 600})
    latest = await connection.fetchval("select clock_timestamp()")
    began = datetime.fromisoformat(response.json()["expires_at"]) - timedelta(seconds=600)
    # The time is rounded, and either clock may be adjusted during the test.
    assert earliest - timedelta(seconds=0.1) <= began <= latest + timedelta(seconds=0.1)
    async with client_of(app) as client:
        assert (await client.get("/streams", params={"token": response.json()["token"]})).status_code == 200
    await app.state.reactor.close()


async def test_a_database_that_does_not_return_the_time_is_a_503() -> None:
    # It accepts connections and never responds.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing"
        app = app_with(url, tokens=ENTRIES, secret=SECRET)
        app.state.reactor.clock = DatabaseClock(app.state.reactor.connection, timeout_seconds=0.1)
        token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
        async with client_of(app) as client:
            streams = [client.get(f"/streams/{PIPELINE}", params={"token": token}) for _ in range(5)]
            for response in await asyncio.gather(*streams):
                assert "did not respond" in problem_detail(response, 503)
        await app.state.reactor.close()


async def test_revoking_a_token_revokes_its_stream_tokens() -> None:
    token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
    # The second entry is a replacement with the same name.
    for entry in (OPERATOR_ENTRY, make_token("vera", [Permission.VIEW])[1]):
        async with client_of(app_with(tokens=entry, secret=SECRET)) as client:
            detail = problem_detail(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)
        assert "no longer valid" in detail


async def test_a_stream_token_is_valid_for_a_minute_by_default() -> None:
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        response = await client.post("/v1/stream-tokens", json={"pipeline_id": None})
    assert datetime.fromisoformat(response.json()["expires_at"]) == datetime.fromtimestamp(1060, UTC)
    assert response.headers["cache-control"] == "no-store"


def test_a_stream_token_with_any_changed_character_is_rejected() -> None:
    signer = Signer(read_settings({"REACTOR_SECRET": SECRET}))
    token, grant = signer.sign(Caller("vera", frozenset(), b"x" * 32), PIPELINE, 1060)
    assert signer.check(token) == grant
    for place, character in enumerate(token):
        # The last character has unused bits: some other characters there decode to the same bytes.
        for other in string.ascii_letters + string.digits + "-_" if place == len(token) - 1 else "Aa0_":
            if other != character:
                with pytest.raises(BadStreamToken):
                    signer.check(token[:place] + other + token[place + 1 :])
        with pytest.raises(BadStreamToken):
            signer.check(token[:place])


@pytest.mark.parametrize(
    "token", ["", "x", "x" * 100, "x" * 101, "x" * 300, "x" * 60_000, "ü" * 50, "\x00" * 50, "=" * 50, "a b" * 20, "%"]
)
async def test_a_malformed_stream_token_is_rejected(token: str) -> None:
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        problem_detail(await client.get("/streams", params={"token": token}), 401)


async def test_two_stream_tokens_are_rejected() -> None:
    app = app_with(tokens=ENTRIES, secret=SECRET)
    token = await mint(app, None)
    async with client_of(app) as client:
        problem_detail(await client.get(f"/streams?token={token}&token={token}"), 400)


async def test_a_stream_token_that_is_not_text_is_rejected() -> None:
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        problem_detail(await client.get("/streams?token=%ff%fe%00"), 401)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"pipeline_id": "x"}', 422),
        (b'{"pipeline_id": null, "ttl_seconds": 0}', 422),
        (b'{"pipeline_id": null, "ttl_seconds": 3601}', 422),
        (b'{"pipeline_id": null, "ttl_seconds": 1e999}', 422),
        (b'{"pipeline_id": null, "for": "ever"}', 422),
        (b"[" * 4000, 400),
    ],
)
async def test_an_invalid_request_for_a_stream_token_is_rejected(body: bytes, status: int) -> None:
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        response = await client.post("/v1/stream-tokens", content=body, headers={"Content-Type": "application/json"})
        problem_detail(response, status)
        if status == 422:
            assert response.json()["errors"]


def test_a_short_secret_is_rejected_and_not_shown() -> None:
    with pytest.raises(SettingsInvalid, match="REACTOR_SECRET: it must have at least 32 characters") as caught:
        read_settings({"REACTOR_SECRET": "hush hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("settings", "events"), [({}, 1), ({"secret": SECRET}, 0)])
def test_a_missing_secret_is_logged(settings: dict[str, str], events: int) -> None:
    with structlog.testing.capture_logs() as logged:
        app_with(tokens=ENTRIES, **settings)
    assert len([event for event in logged if "REACTOR_SECRET" in event["event"]]) == events


# Without tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:80", "localhost:8080", "LOCALHOST", "[::1]:8080", "[::1]"])
async def test_without_tokens_loopback_callers_have_all_permissions(host: str) -> None:
    async with client_of(app_with(), address="::1") as client:
        assert (await client.get("/may/operate", headers={"Host": host})).status_code == 200
        assert (await client.get("/streams?token=old", headers={"Host": host})).json() == {"who": "anonymous"}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "[::1",
        "[::1]x",
        "localhost:x",
        "127.0.0.1:80:80",
        "0.0.0.0",
        "localhosté",
        ",",
    ],
)
async def test_without_tokens_a_foreign_host_name_is_rejected(host: str) -> None:
    """DNS rebinding. The browser lets a page of evil.example through once that name resolves to 127.0.0.1."""
    async with client_of(app_with()) as client:
        headers = [(b"Host", host.encode("latin-1"))]
        assert "localhost" in problem_detail(await client.get("/may/view", headers=headers), 403)
        problem_detail(await client.get("/v1/me", headers=headers), 403)
        problem_detail(await client.get("/streams", headers=headers), 403)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.5", "2001:db8::1", "::ffff:10.0.0.1", "testclient", ""])
async def test_without_tokens_other_machines_are_rejected(address: str) -> None:
    """An application that mounts reactor may bind to all addresses."""
    outer = Starlette(routes=[Mount("/reactor", app_with())])
    async with client_of(outer, address=address) as client:
        response = await client.get("/reactor/may/view")
        problem_detail(response, 401)
        assert "reactor token" in response.json()["remedy"]
        problem_detail(await client.get("/reactor/streams"), 401)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host"])
async def test_without_tokens_proxied_requests_are_rejected(header: str) -> None:
    async with client_of(app_with()) as client:
        problem_detail(await client.get("/may/view", headers={header: "127.0.0.1"}), 401)


async def test_a_mounted_application_accepts_tokens_from_other_machines() -> None:
    outer = Starlette(routes=[Mount("/reactor", app_with(tokens=ENTRIES))])
    async with client_of(outer, VIEWER, address="10.0.0.1", base="http://app.example") as client:
        assert (await client.get("/reactor/may/view")).json() == {"who": "vera", "from": "10.0.0.1"}


def outer_app(**settings: str) -> Starlette:
    """An application with an endpoint of its own beside the mounted one."""
    mounted = app_with(**settings)

    async def own(request: Request) -> JSONResponse:
        return JSONResponse({"who": authorize(mounted, request, "submit").name})

    return Starlette(routes=[Route("/own", own, methods=["GET", "POST"]), Mount("/reactor", mounted)])


async def test_an_application_checks_its_own_requests_by_the_tokens_of_the_mounted_one() -> None:
    for token, status in ((OPERATOR, 200), (VIEWER, 403), ("reactor_unknown", 401), (None, 401)):
        async with client_of(outer_app(tokens=ENTRIES), token, address="10.0.0.1", base="http://app.example") as client:
            response = await client.get("/own")
            assert response.status_code == status, response.text
            assert ("www-authenticate" in response.headers) is (status != 200)
            if status == 200:
                assert response.json() == {"who": "olga"}
            else:
                assert "token" in response.text


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1"])
async def test_without_tokens_an_application_accepts_its_own_requests_from_loopback_only(address: str) -> None:
    async with client_of(outer_app(), address=address) as client:
        assert (await client.get("/own")).status_code == (200 if address == "127.0.0.1" else 401)


async def test_pages_of_other_sites_can_not_post_to_an_application_that_checks_tokens() -> None:
    async with client_of(outer_app(origins=SITE)) as client:
        for origin, status in (("https://evil.example", 403), (SITE, 200)):
            assert (await client.post("/own", headers={"Origin": origin})).status_code == status


# The audit


async def test_the_audit_records_the_operators_name_and_address(database: str, connection: Connection) -> None:
    app = app_with(database, tokens=ENTRIES)
    async with client_of(app, OPERATOR, address="10.1.2.3") as client:
        spoofed = {"X-Forwarded-For": "6.6.6.6"}
        assert (await client.post("/v1/drain", json={"on": True}, headers=spoofed)).status_code == 200
    await app.state.reactor.close()
    noted = await connection.fetchrow("select who, what, came_from from reactor.audit order by id desc limit 1")
    assert noted is not None
    assert tuple(noted) == ("olga", "drain", "10.1.2.3")


# Origins

SITE = "https://app.example.com"


async def test_pages_of_other_sites_can_not_post() -> None:
    """A browser sends such POSTs and hides only the response."""
    for settings in ({}, {"tokens": ENTRIES}):
        async with client_of(app_with(**settings), OPERATOR) as client:
            for origin in ("https://evil.example", "null", "http://127.0.0.1", "http://localhost:8080", "file://", "x"):
                response = await client.post("/may/operate", headers={"Origin": origin})
                problem_detail(response, 403)
                assert "REACTOR_ORIGINS" in response.json()["remedy"]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("https://reactor.example", "reactor.example"),
        ("https://reactor.example", "Reactor.Example:443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
async def test_the_servers_own_page_can_post(origin: str, host: str) -> None:
    async with client_of(app_with(tokens=ENTRIES), OPERATOR) as client:
        assert (await client.post("/may/operate", headers={"Origin": origin, "Host": host})).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        b"",
        b"://",
        b"http://",
        b"http://127.0.0.1:8080/",
        b"http://127.0.0.1:8080@evil.example",
        b"http://evil.example#127.0.0.1:8080",
        b"javascript://127.0.0.1:8080",
        b"http://127.0.0.1:8080, https://evil.example",
        b"https://app.example.com.evil.example",
        b"HTTPS://APP.EXAMPLE.COM",
        b"\xff\x00",
        b"x" * 50_000,
    ],
)
async def test_malformed_origins_are_rejected(origin: bytes) -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        response = await client.post("/may/operate", headers=[(b"Origin", origin)])
        assert len(response.content) < 1000
        problem_detail(response, 403)
        assert "access-control-allow-origin" not in response.headers


async def test_two_origin_headers_are_rejected() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        problem_detail(await client.post("/may/operate", headers=[("Origin", SITE)] * 2), 403)


async def test_allowed_origins_can_send_and_read() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=f"{SITE}, http://localhost:3000"), OPERATOR) as client:
        preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        for origin in (SITE, "http://localhost:3000"):
            before = await client.options("/may/operate", headers={"Origin": origin} | preflight)
            assert before.status_code == 204
            for header in ("Authorization", "Last-Event-ID"):
                assert header in before.headers["access-control-allow-headers"]
            for response in (
                before,
                await client.post("/may/operate", headers={"Origin": origin}),
                await client.get("/may/view", headers={"Origin": origin, "Authorization": "Bearer wrong"}),
            ):
                assert response.headers["access-control-allow-origin"] == origin
                assert response.headers["vary"] == "Origin"
                assert "access-control-allow-credentials" not in response.headers


async def test_other_origins_can_neither_send_nor_read() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        elsewhere = {"Origin": "https://evil.example"}
        preflight = elsewhere | {"Access-Control-Request-Method": "POST"}
        before = await client.options("/may/operate", headers=preflight)
        problem_detail(before, 403)
        for response in (before, await client.get("/may/view", headers=elsewhere)):
            assert "access-control-allow-origin" not in response.headers
        assert response.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("origins", "message"),
    [
        ("*", r"every page on the web"),
        (f"{SITE},*", r"every page on the web"),
        ("app.example.com", "scheme and a host"),
        (f"{SITE}/", "scheme and a host"),
        (f"{SITE}/page", "scheme and a host"),
        ("null", "scheme and a host"),
        ("https://*.example.com", "scheme and a host"),
    ],
)
def test_invalid_origins_in_the_settings_are_rejected(origins: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"REACTOR_ORIGINS.*{message}"):
        read_settings({"REACTOR_ORIGINS": origins})


def test_origins_in_the_settings_are_normalized() -> None:
    settings = read_settings({"REACTOR_ORIGINS": "HTTPS://App.Example.com:443, http://a:80,http://[::1]:3000"})
    assert settings.origins == (SITE, "http://a", "http://[::1]:3000")


# Headers


async def test_every_response_has_the_security_headers() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        for path in ("/", "/page.js", "/v1/me", "/may/view", "/nowhere", "/health/live"):
            headers = (await client.get(path)).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cross-origin-resource-policy"] == "same-origin"
        refusal = await client.post("/may/view", headers={"Origin": "https://evil.example"})
        assert "content-security-policy" in refusal.headers


@pytest.mark.parametrize("prefix", ["", "/reactor"])
async def test_every_site_can_load_the_components_script(prefix: str) -> None:
    app = app_with(tokens=ENTRIES, origins=SITE)
    async with client_of(Starlette(routes=[Mount(prefix, app)]) if prefix else app) as client:
        headers = (await client.get(f"{prefix}/reactor-progress.js", headers={"Origin": "https://any.example"})).headers
        assert headers["cross-origin-resource-policy"] == "cross-origin"
        assert headers["access-control-allow-origin"] == "*"
        other = (await client.get(f"{prefix}/v1/reactor-progress.js")).headers
        assert other["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in other


# `reactor token`


def reactor_token(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "reactor", "token", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_created_token_matches_its_entry() -> None:
    made = json.loads(reactor_token("anna", "--allow", "operate,view", "--json").stdout)
    assert made["entry"].startswith("anna:view+operate:")
    found = Tokens(read_settings({"REACTOR_TOKENS": made["entry"]})).find(made["token"])
    assert found is not None
    assert found.name == "anna"
    assert found.permissions == {Permission.VIEW, Permission.OPERATE}
    assert made["token"] not in made["entry"]


def test_the_token_command_prints_token_and_entry_and_where_they_go() -> None:
    first, second = reactor_token("anna"), reactor_token("anna")
    token, entry = (line.split() for line in first.stdout.splitlines())
    assert token[0] == "token"
    assert len(token[1]) > 40
    assert entry[1].startswith("anna:view:")
    assert "REACTOR_TOKENS_FILE" in first.stderr
    assert first.stdout != second.stdout


@pytest.mark.parametrize("arguments", [["an:na"], [""], ["anna", "--allow", "fly"], ["anna", "--allow", ""], []])
def test_invalid_arguments_of_the_token_command_are_usage_errors(arguments: list[str]) -> None:
    assert reactor_token(*arguments).returncode == 2
