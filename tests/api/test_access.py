"""Who may use the API: tokens, permissions, stream tokens, and every refusal."""

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
from reactor.operate import actions
from reactor.settings import read_settings
from reactor_http.api.access import Caller, Permission, needs, operator, stream_caller
from reactor_http.app import create_app
from reactor_http.auth.stream_token import BadStreamToken, Signer
from reactor_http.auth.tokens import Tokens, make_token
from reactor_http.state import edge_of

SECRET = "of all pods of this test " * 2
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
# Fixed, since the tests' names must be the same in every process that runs them.
VIEWER, SUBMITTER, OPERATOR = ("reactor_" + letter * 43 for letter in "vso")
VIEWER_ENTRY, SUBMITTER_ENTRY, OPERATOR_ENTRY = (
    f"{entry}:{hashlib.sha256(token.encode()).hexdigest()}"
    for entry, token in (("vera:view", VIEWER), ("sam:submit", SUBMITTER), ("olga:view+submit+operate", OPERATOR))
)
ENTRIES = f"{VIEWER_ENTRY}, {SUBMITTER_ENTRY} {OPERATOR_ENTRY}"
PIPELINE = uuid4()


class Told:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    async def now(self) -> float:
        return self.time


def app_with(url: str = NOWHERE, **settings: str) -> Starlette:
    """The application with these settings, and four paths that answer who they were called by.

    Without a database it has to be told the time.
    """
    named = {f"REACTOR_{name.upper()}": value for name, value in settings.items()}
    app = create_app(url, read_settings(named))
    if url == NOWHERE:
        app.state.edge.clock = Told()

    async def who(request: Request) -> JSONResponse:
        return JSONResponse({"who": operator(request).who, "from": operator(request).came_from})

    async def pipeline_stream(request: Request) -> JSONResponse:
        found = await stream_caller(request, UUID(request.path_params["id"]))
        return JSONResponse({"who": found.name, "may": sorted(found.permissions)})

    async def all_streams(request: Request) -> JSONResponse:
        return JSONResponse({"who": (await stream_caller(request, None)).name})

    async def drain(request: Request) -> JSONResponse:
        async with edge_of(request).connection() as connection:
            return JSONResponse(await actions.drain(connection, True, operator(request)))

    app.router.routes[:0] = [
        *(Route(f"/may/{p}", needs(p, who), methods=["GET", "POST"]) for p in Permission),
        Route("/streams/{id}", pipeline_stream),
        Route("/streams", all_streams),
        Route("/drain", needs(Permission.OPERATE, drain), methods=["POST"]),
    ]
    return app


def client_of(
    app: Any, token: str | None = None, address: str = "127.0.0.1", base: str = "http://127.0.0.1:8080"
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 5000))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url=base, headers=headers)


def refused(answer: httpx.Response, status: int) -> str:
    """What the refusal says; it never repeats a token."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for secret in (VIEWER, SUBMITTER, OPERATOR):
        assert secret not in answer.text
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
    detail: str = answer.json()["detail"]
    return detail


# Bearer tokens


async def test_a_token_opens_what_its_entry_allows() -> None:
    """D13"""
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        assert (await client.get("/may/view")).json()["who"] == "vera"
        said = refused(await client.get("/may/operate"), 403)
        assert "operate" in said
        assert "vera" in said
        assert (await client.get("/may/submit")).json()["missing"] == "submit"


async def test_without_a_token_nothing_is_opened() -> None:
    """D13"""
    async with client_of(app_with(tokens=ENTRIES)) as client:
        for path in ("/may/view", "/may/submit", "/may/operate", "/streams", f"/streams/{PIPELINE}"):
            assert "needs a token" in refused(await client.get(path), 401)
        refused(await client.post("/v1/stream-tokens", json={"pipeline_id": None}), 401)


async def test_what_is_nobodys_is_open_to_all() -> None:
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
async def test_what_is_no_token_of_ours_is_refused(header: str | bytes) -> None:
    headers = [(b"Authorization", header.encode() if isinstance(header, str) else header)]
    async with client_of(app_with(tokens=ENTRIES)) as client:
        refused(await client.get("/may/view", headers=headers), 401)
        refused(await client.get("/v1/me", headers=headers), 401)
        refused(await client.get("/streams", headers=headers), 401)


async def test_two_authorization_headers_are_refused_whatever_they_say() -> None:
    twice = [("Authorization", f"Bearer {VIEWER}")] * 2
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert "more than one" in refused(await client.get("/may/view", headers=twice), 400)


async def test_the_schemes_letters_may_be_small() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert (await client.get("/may/view", headers={"Authorization": f"bearer {VIEWER}"})).status_code == 200


def test_every_entry_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: how long it takes must not tell which entry a guess came near to."""
    tokens = Tokens(read_settings({"REACTOR_TOKENS": ENTRIES}))
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def noting(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return compare(known, given)

    monkeypatch.setattr("hmac.compare_digest", noting)
    for token in (VIEWER, SUBMITTER, OPERATOR, "unknown"):
        compared.clear()
        tokens.find(token)
        assert len(compared) == 3


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (" , ", "holds no token"),
        (VIEWER, "NAME:PERMISSION"),
        (f"vera:view:{VIEWER}", "SHA-256"),
        (VIEWER_ENTRY.replace("view", "fly"), "permission that does not exist; there are view, submit, operate"),
        (VIEWER_ENTRY.replace("view", ""), "NAME:PERMISSION"),
        (VIEWER_ENTRY.replace("vera", "ve ra"), "NAME:PERMISSION"),
        (f"{VIEWER_ENTRY},{VIEWER_ENTRY}", "twice"),
    ],
)
def test_entries_that_do_not_fit_end_the_start_and_are_not_shown(entries: str, complaint: str) -> None:
    with pytest.raises(SettingsInvalid, match=complaint) as caught:
        app_with(tokens=entries)
    assert VIEWER not in str(caught.value)
    assert "REACTOR_TOKENS" in str(caught.value)


# The file


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def write(file: Path, content: str | bytes) -> None:
    """As a volume of Kubernetes does it: a new file in the old one's place."""
    new = file.with_suffix(".new")
    new.write_bytes(content if isinstance(content, bytes) else content.encode())
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    write(file, f"# who may do what\n{VIEWER_ENTRY}  # since spring\n\n{SUBMITTER_ENTRY}\n")
    return file


def test_tokens_in_a_file_come_and_go_without_a_restart(file: Path) -> None:
    """D13"""
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


def test_a_file_is_looked_at_once_a_second_at_most(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    write(file, OPERATOR_ENTRY)
    clock.now += 0.9
    assert tokens.find(VIEWER) is not None


@pytest.mark.parametrize("broken", [f"{OPERATOR_ENTRY}\nvera:vi", b"\xff\xfe", b"\x00", "x" * 1_000_001, None], ids=str)
def test_a_file_that_breaks_leaves_the_tokens_it_had(file: Path, broken: str | bytes | None) -> None:
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


def test_an_emptied_file_lets_nobody_in(file: Path) -> None:
    clock = Clock()
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file)}), clock)
    write(file, "# all revoked\n")
    clock.now += 1
    assert tokens.find(VIEWER) is None
    assert tokens.are_configured


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), ("", "holds no token"), ("vera", "line 1"), (f"\n{VIEWER_ENTRY}x", "line 2")],
)
def test_a_file_that_is_broken_at_the_start_ends_it(tmp_path: Path, content: str | None, complaint: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsInvalid, match=complaint):
        app_with(tokens_file=str(file))


def test_the_file_adds_to_the_variable(file: Path) -> None:
    tokens = Tokens(read_settings({"REACTOR_TOKENS_FILE": str(file), "REACTOR_TOKENS": OPERATOR_ENTRY}))
    assert tokens.find(VIEWER)
    assert tokens.find(OPERATOR)


# Who am I


async def test_me_tells_the_tokens_name_and_permissions() -> None:
    async with client_of(app_with(tokens=ENTRIES), SUBMITTER) as client:
        assert (await client.get("/v1/me")).json() == {"name": "sam", "permissions": ["submit"], "needs_token": True}


async def test_me_tells_those_without_a_token_that_one_is_needed() -> None:
    async with client_of(app_with(tokens=ENTRIES)) as client:
        assert (await client.get("/v1/me")).json() == {"name": None, "permissions": [], "needs_token": True}


async def test_me_tells_where_none_is_needed() -> None:
    async with client_of(app_with()) as client:
        answer = (await client.get("/v1/me")).json()
    assert answer == {"name": "anonymous", "permissions": ["operate", "submit", "view"], "needs_token": False}


# Stream tokens


async def mint(app: Starlette, pipeline_id: UUID | None = PIPELINE, **more: Any) -> str:
    async with client_of(app, VIEWER) as client:
        wanted = {"pipeline_id": str(pipeline_id) if pipeline_id else None} | more
        answer = await client.post("/v1/stream-tokens", json=wanted)
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


async def test_a_stream_token_opens_its_pipelines_stream_and_nothing_else() -> None:
    """D13"""
    app = app_with(tokens=ENTRIES, secret=SECRET)
    token = await mint(app)
    async with client_of(app) as client:
        answer = await client.get(f"/streams/{PIPELINE}", params={"token": token})
        assert answer.json() == {"who": "vera", "may": ["view"]}
        assert "another pipeline" in refused(await client.get(f"/streams/{uuid4()}", params={"token": token}), 403)
        assert "all" in refused(await client.get("/streams", params={"token": token}), 403)
        refused(await client.get("/may/view", params={"token": token}), 401)
        refused(await client.get("/may/view", headers={"Authorization": f"Bearer {token}"}), 401)


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
        assert "view" in refused(await client.get("/streams"), 403)
    async with client_of(app) as client:
        refused(await client.get("/streams", params={"token": VIEWER}), 401)


async def test_pods_with_the_same_secret_accept_each_others_stream_tokens() -> None:
    """D13"""
    token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        assert (await client.get(f"/streams/{PIPELINE}", params={"token": token})).status_code == 200
    for other in ({"secret": SECRET + "!"}, {}):
        async with client_of(app_with(tokens=ENTRIES, **other)) as client:
            said = refused(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)
            assert "REACTOR_SECRET" in said


async def test_a_stream_token_ends_when_it_said_it_would() -> None:
    """D13"""
    app = app_with(tokens=ENTRIES, secret=SECRET)
    clock = app.state.edge.clock
    token = await mint(app, ttl_seconds=5)
    async with client_of(app) as client:
        clock.time += 4.9
        assert (await client.get(f"/streams/{PIPELINE}", params={"token": token})).status_code == 200
        clock.time += 0.2
        assert "expired" in refused(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)


async def test_its_end_is_told_by_the_databases_clock(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pods must agree on it, whatever their own clocks say."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    app = app_with(database, tokens=ENTRIES, secret=SECRET)
    earliest = await connection.fetchval("select clock_timestamp()")
    async with client_of(app, VIEWER) as client:
        answer = await client.post("/v1/stream-tokens", json={"pipeline_id": None, "ttl_seconds": 600})
    latest = await connection.fetchval("select clock_timestamp()")
    began = datetime.fromisoformat(answer.json()["expires_at"]) - timedelta(seconds=600)
    # It is rounded, and the two clocks may be adjusted meanwhile.
    assert earliest - timedelta(seconds=0.1) <= began <= latest + timedelta(seconds=0.1)
    async with client_of(app) as client:
        assert (await client.get("/streams", params={"token": answer.json()["token"]})).status_code == 200
    await app.state.edge.close()


async def test_a_database_that_does_not_tell_the_time_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_http.database_clock._ANSWER_SECONDS", 0.1)
    # It takes connections and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as mute:
        app = app_with(f"postgresql://nobody@127.0.0.1:{mute.getsockname()[1]}/nothing", tokens=ENTRIES, secret=SECRET)
        token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
        async with client_of(app) as client:
            streams = [client.get(f"/streams/{PIPELINE}", params={"token": token}) for _ in range(5)]
            for answer in await asyncio.gather(*streams):
                assert "has not answered" in refused(answer, 503)
        await app.state.edge.close()


async def test_a_stream_token_dies_with_the_token_it_was_made_with() -> None:
    token = await mint(app_with(tokens=ENTRIES, secret=SECRET))
    # The second is the one that it was replaced by.
    for entry in (OPERATOR_ENTRY, make_token("vera", [Permission.VIEW])[1]):
        async with client_of(app_with(tokens=entry, secret=SECRET)) as client:
            said = refused(await client.get(f"/streams/{PIPELINE}", params={"token": token}), 401)
        assert "no longer valid" in said


async def test_a_stream_token_lives_a_minute_unless_asked_otherwise() -> None:
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        answer = await client.post("/v1/stream-tokens", json={"pipeline_id": None})
    assert datetime.fromisoformat(answer.json()["expires_at"]) == datetime.fromtimestamp(1060, UTC)
    assert answer.headers["cache-control"] == "no-store"


def test_every_changed_character_is_noticed() -> None:
    signer = Signer(read_settings({"REACTOR_SECRET": SECRET}))
    token, grant = signer.sign(Caller("vera", frozenset(), b"x" * 32), PIPELINE, 1060)
    assert signer.check(token) == grant
    for place, character in enumerate(token):
        # The last one has bits to spare: some others there mean the same bytes.
        for other in string.ascii_letters + string.digits + "-_" if place == len(token) - 1 else "Aa0_":
            if other != character:
                with pytest.raises(BadStreamToken):
                    signer.check(token[:place] + other + token[place + 1 :])
        with pytest.raises(BadStreamToken):
            signer.check(token[:place])


@pytest.mark.parametrize(
    "token", ["", "x", "x" * 100, "x" * 101, "x" * 300, "x" * 60_000, "ü" * 50, "\x00" * 50, "=" * 50, "a b" * 20, "%"]
)
async def test_what_is_no_stream_token_is_refused(token: str) -> None:
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        refused(await client.get("/streams", params={"token": token}), 401)


async def test_two_stream_tokens_are_refused() -> None:
    app = app_with(tokens=ENTRIES, secret=SECRET)
    token = await mint(app, None)
    async with client_of(app) as client:
        refused(await client.get(f"/streams?token={token}&token={token}"), 400)


async def test_bytes_in_the_address_that_are_no_text_are_refused() -> None:
    async with client_of(app_with(tokens=ENTRIES, secret=SECRET)) as client:
        refused(await client.get("/streams?token=%ff%fe%00"), 401)


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
async def test_a_request_for_a_stream_token_that_does_not_fit_is_refused(body: bytes, status: int) -> None:
    async with client_of(app_with(tokens=ENTRIES), VIEWER) as client:
        answer = await client.post("/v1/stream-tokens", content=body, headers={"Content-Type": "application/json"})
        refused(answer, status)
        if status == 422:
            assert answer.json()["errors"]


def test_a_short_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsInvalid, match="REACTOR_SECRET: it must have at least 32 characters") as caught:
        read_settings({"REACTOR_SECRET": "hush hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("settings", "events"), [({}, 1), ({"secret": SECRET}, 0)])
def test_a_secret_of_ones_own_is_told(settings: dict[str, str], events: int) -> None:
    with structlog.testing.capture_logs() as told:
        app_with(tokens=ENTRIES, **settings)
    assert len([event for event in told if "REACTOR_SECRET" in event["event"]]) == events


# Without tokens


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:80", "localhost:8080", "LOCALHOST", "[::1]:8080", "[::1]"])
async def test_without_tokens_this_machine_may_do_everything(host: str) -> None:
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
async def test_without_tokens_a_name_that_points_here_is_refused(host: str) -> None:
    """D13: a page of evil.example whose name suddenly means 127.0.0.1 is let through by the browser, not by us."""
    async with client_of(app_with()) as client:
        headers = [(b"Host", host.encode("latin-1"))]
        assert "localhost" in refused(await client.get("/may/view", headers=headers), 403)
        refused(await client.get("/v1/me", headers=headers), 403)
        refused(await client.get("/streams", headers=headers), 403)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.5", "2001:db8::1", "::ffff:10.0.0.1", "testclient", ""])
async def test_without_tokens_other_machines_are_told_to_have_tokens_configured(address: str) -> None:
    """D13: mounted into an application, nothing keeps that one from binding to all addresses."""
    outer = Starlette(routes=[Mount("/reactor", app_with())])
    async with client_of(outer, address=address) as client:
        answer = await client.get("/reactor/may/view")
        refused(answer, 401)
        assert "reactor token" in answer.json()["remedy"]
        refused(await client.get("/reactor/streams"), 401)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host"])
async def test_without_tokens_what_came_through_a_proxy_is_refused(header: str) -> None:
    async with client_of(app_with()) as client:
        refused(await client.get("/may/view", headers={header: "127.0.0.1"}), 401)


async def test_mounted_with_tokens_it_is_open_to_those_who_have_one() -> None:
    outer = Starlette(routes=[Mount("/reactor", app_with(tokens=ENTRIES))])
    async with client_of(outer, VIEWER, address="10.0.0.1", base="http://app.example") as client:
        assert (await client.get("/reactor/may/view")).json() == {"who": "vera", "from": "10.0.0.1"}


# The audit


async def test_an_operators_action_leaves_their_name_and_address(database: str, connection: Connection) -> None:
    """D13"""
    app = app_with(database, tokens=ENTRIES)
    async with client_of(app, OPERATOR, address="10.1.2.3") as client:
        spoofed = {"X-Forwarded-For": "6.6.6.6"}
        assert (await client.post("/drain", headers=spoofed)).status_code == 200
    await app.state.edge.close()
    noted = await connection.fetchrow("select who, what, came_from from reactor.audit order by id desc limit 1")
    assert noted is not None
    assert tuple(noted) == ("olga", "drain", "10.1.2.3")


# Origins

SITE = "https://app.example.com"


async def test_pages_of_other_sites_may_not_post() -> None:
    """D13: a browser sends such POSTs, and hides only the answer."""
    for settings in ({}, {"tokens": ENTRIES}):
        async with client_of(app_with(**settings), OPERATOR) as client:
            for origin in ("https://evil.example", "null", "http://127.0.0.1", "http://localhost:8080", "file://", "x"):
                answer = await client.post("/may/operate", headers={"Origin": origin})
                refused(answer, 403)
                assert "REACTOR_ORIGINS" in answer.json()["remedy"]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("https://reactor.example", "reactor.example"),
        ("https://reactor.example", "Reactor.Example:443"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
async def test_our_own_page_may_post(origin: str, host: str) -> None:
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
async def test_strange_origins_are_refused(origin: bytes) -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        answer = await client.post("/may/operate", headers=[(b"Origin", origin)])
        assert len(answer.content) < 1000
        refused(answer, 403)
        assert "access-control-allow-origin" not in answer.headers


async def test_two_origins_are_none() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        refused(await client.post("/may/operate", headers=[("Origin", SITE)] * 2), 403)


async def test_named_sites_may_ask_and_read() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=f"{SITE}, http://localhost:3000"), OPERATOR) as client:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        for origin in (SITE, "http://localhost:3000"):
            before = await client.options("/may/operate", headers={"Origin": origin} | asked)
            assert before.status_code == 204
            for header in ("Authorization", "Last-Event-ID"):
                assert header in before.headers["access-control-allow-headers"]
            for answer in (
                before,
                await client.post("/may/operate", headers={"Origin": origin}),
                await client.get("/may/view", headers={"Origin": origin, "Authorization": "Bearer wrong"}),
            ):
                assert answer.headers["access-control-allow-origin"] == origin
                assert answer.headers["vary"] == "Origin"
                assert "access-control-allow-credentials" not in answer.headers


async def test_other_sites_can_neither_ask_nor_read() -> None:
    async with client_of(app_with(tokens=ENTRIES, origins=SITE), OPERATOR) as client:
        elsewhere = {"Origin": "https://evil.example"}
        asked = elsewhere | {"Access-Control-Request-Method": "POST"}
        before = await client.options("/may/operate", headers=asked)
        refused(before, 403)
        for answer in (before, await client.get("/may/view", headers=elsewhere)):
            assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("origins", "complaint"),
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
def test_origins_that_are_none_are_refused(origins: str, complaint: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"REACTOR_ORIGINS.*{complaint}"):
        read_settings({"REACTOR_ORIGINS": origins})


def test_origins_are_kept_as_browsers_send_them() -> None:
    settings = read_settings({"REACTOR_ORIGINS": "HTTPS://App.Example.com:443, http://a:80,http://[::1]:3000"})
    assert settings.origins == (SITE, "http://a", "http://[::1]:3000")


# Headers


async def test_every_answer_tells_browsers_to_be_strict() -> None:
    """D13"""
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
async def test_the_components_script_may_be_loaded_by_every_site(prefix: str) -> None:
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


def test_a_made_token_fits_its_entry() -> None:
    made = json.loads(reactor_token("anna", "--allow", "operate,view", "--json").stdout)
    assert made["entry"].startswith("anna:view+operate:")
    found = Tokens(read_settings({"REACTOR_TOKENS": made["entry"]})).find(made["token"])
    assert found is not None
    assert found.name == "anna"
    assert found.permissions == {Permission.VIEW, Permission.OPERATE}
    assert made["token"] not in made["entry"]


def test_the_command_prints_token_and_entry_and_says_where_they_go() -> None:
    first, second = reactor_token("anna"), reactor_token("anna")
    token, entry = (line.split() for line in first.stdout.splitlines())
    assert token[0] == "token"
    assert len(token[1]) > 40
    assert entry[1].startswith("anna:view:")
    assert "REACTOR_TOKENS_FILE" in first.stderr
    assert first.stdout != second.stdout


@pytest.mark.parametrize("arguments", [["an:na"], [""], ["anna", "--allow", "fly"], ["anna", "--allow", ""], []])
def test_what_makes_no_token_is_a_usage_error(arguments: list[str]) -> None:
    assert reactor_token(*arguments).returncode == 2
