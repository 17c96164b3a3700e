"""Clients that others wrote follow a pipeline to its end, behind nginx, while the server is restarted."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from reactor.client.submit import NewJob
from reactor.testing import Databases
from tests.page.site import Site, site_on
from tests.support.browsers import chromium
from tests.support.client_tools import installed
from tests.support.documents import code_blocks
from tests.support.nginx import Nginx, nginx_for
from tests.support.proxy import proxy_for
from tests.support.until import until

pytestmark = [pytest.mark.pods]

PROGRAMS = Path(__file__).parent / "streams"
BEARER = "view-me"
# Some readers of lines take these for the end of a line.
SEPARATORS = "a\u2028b\u2029c\x85d\x0be\x1cf"


@dataclass
class Received:
    """What a client has dispatched, and the rows that follow from it."""

    events: list[tuple[str, str]] = field(default_factory=list)

    @property
    def rows(self) -> dict[Any, Any]:
        rows: dict[Any, Any] = {}
        for name, data in self.events:
            content = json.loads(data or "null")
            if name == "snapshot":
                rows = {"pipeline": content["pipeline"]}
                rows |= {job["id"]: job for job in content["jobs"]}
                rows |= {(step["job_id"], step["name"]): step for step in content["steps"]}
            elif name == "job":
                # The edges of a known job are not sent again.
                rows[content["id"]] = content | {"depends_on": rows[content["id"]]["depends_on"]}
            elif name == "step":
                rows[content["job_id"], content["name"]] = content
            elif name == "pipeline":
                rows["pipeline"] = content
        return rows

    def shows(self, message: str) -> bool:
        rows = self.rows.items()
        messages = [row["status_message"] for key, row in rows if isinstance(key, int)]
        return bool(messages) and set(messages) == {message}


@dataclass
class Client:
    read: Callable[[], Awaitable[Received]]
    has_ended: Callable[[], Awaitable[bool]]
    """By itself and without an error, because the pipeline has ended."""


@dataclass(frozen=True)
class Stream:
    address: str
    pipeline: str
    folder: Path
    """For the client's files."""


@asynccontextmanager
async def curl(stream: Stream) -> AsyncIterator[Client]:
    if not shutil.which("curl"):
        pytest.skip("there is no curl: apt-get install curl; `make clients` installs the rest")
    output = stream.folder / "curl.txt"
    arguments = ["sh", PROGRAMS / "follow.sh", stream.address, BEARER, output]
    async with program(arguments, {"PATH": os.environ["PATH"]}, lambda: parse(output.read_text())) as client:
        yield client


def parse(text: str) -> list[tuple[str, str]]:
    """Every block of a stream, empty ones included."""
    events = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line[:1] != ":")
        events.append((fields.get("event", "message"), fields.get("data", "")))
    return events


def library(name: str) -> Callable[[Stream], AbstractAsyncContextManager[Client]]:
    """A program that prints events as lines of JSON."""

    @asynccontextmanager
    async def start(stream: Stream) -> AsyncIterator[Client]:
        tools = installed("streams")
        # Node looks for packages beside the program.
        copied = shutil.copy(PROGRAMS / name, tools.folder)
        output = stream.folder / "events.jsonl"
        arguments = [tools.python if name.endswith(".py") else "node", copied, stream.address, BEARER]
        async with program(arguments, tools.environment, lambda: read_lines(output), output) as client:
            yield client

    return start


def read_lines(file: Path) -> list[tuple[str, str]]:
    lines = file.read_text().split("\n")
    return [(name, data) for name, data in map(json.loads, lines[:-1])]


@asynccontextmanager
async def program(
    arguments: list[Any],
    environment: dict[str, str],
    read: Callable[[], list[tuple[str, str]]],
    output: Path = Path(os.devnull),
) -> AsyncIterator[Client]:
    with output.open("w") as file:
        process = subprocess.Popen(list(map(str, arguments)), env=environment, stdout=file)

    async def read_all() -> Received:
        with suppress(FileNotFoundError):
            return Received(read())
        return Received()

    async def has_ended() -> bool:
        assert process.poll() in (None, 0)
        return process.poll() == 0

    try:
        yield Client(read_all, has_ended)
    finally:
        process.kill()
        process.wait()


# Records what the documented example dispatches, and what it does not listen to.
RECORDER = """
const received = [], sources = [];
window.EventSource = class extends EventSource {
  constructor(address) {
    super(address);
    sources.push(this);
    this.onmessage = ({ data }) => received.push(["message", data]);
  }
};
async function newToken(pipeline_id) {
  const headers = { Authorization: "Bearer %s", "Content-Type": "application/json" };
  const response = await fetch("/v1/stream-tokens", { method: "POST", headers, body: JSON.stringify({ pipeline_id }) });
  return (await response.json()).token;
}
window.received = received;
window.sources = sources;
%s
follow("%s", newToken, (name, data) => received.push([name, JSON.stringify(data)]));
"""


@asynccontextmanager
async def browser(stream: Stream) -> AsyncIterator[Client]:
    follow, _, _ = code_blocks("streams.md", "js")[0].partition("\nconst jobs")
    async with chromium() as running:
        page = await running.new_page()
        # Any page of the same origin will do.
        await page.goto(f"{stream.address.partition('/v1/')[0]}/health/live")
        await page.evaluate("() => {" + RECORDER % (BEARER, follow, stream.pipeline) + "}")

        async def read() -> Received:
            return Received([(name, data) for name, data in await page.evaluate("received")])

        async def has_ended() -> bool:
            is_closed = "sources.every((source) => source.readyState === EventSource.CLOSED)"
            return await page.evaluate(is_closed) and (await read()).events[-1][0] == "end"

        yield Client(read, has_ended)


CLIENTS = {
    "curl": curl,
    "eventsource": library("eventsource.js"),
    "fetch-event-source": library("fetch_event_source.js"),
    "httpx-sse": library("httpx_sse_client.py"),
    "browser": browser,
}


@pytest.fixture
async def site(databases: Databases, tmp_path: Path) -> AsyncIterator[Site]:
    tokens = f"ann:view:{hashlib.sha256(BEARER.encode()).hexdigest()}"
    async with site_on(databases, tmp_path, works=False, tokens=tokens, secret="s" * 40) as site:
        yield site


@pytest.fixture
async def nginx(site: Site, tmp_path: Path) -> AsyncIterator[Nginx]:
    async with nginx_for(urlsplit(site.address).netloc, tmp_path) as nginx:
        yield nginx


async def set_message(site: Site, message: str) -> None:
    await site.fetch("update reactor.jobs set status_message = $1", message)


async def stored(site: Site, pipeline: str) -> dict[Any, Any]:
    async with httpx.AsyncClient(base_url=site.address, headers={"authorization": f"Bearer {BEARER}"}) as client:
        body = (await client.get(f"/v1/pipelines/{pipeline}")).text
    return Received([("snapshot", body)]).rows


@pytest.mark.parametrize("start", CLIENTS.values(), ids=CLIENTS)
async def test_a_client_behind_nginx_follows_a_pipeline_through_restarts(
    start: Callable[[Stream], AbstractAsyncContextManager[Client]], site: Site, nginx: Nginx, tmp_path: Path
) -> None:
    pipeline = await site.submit([NewJob(job_type="work")] * 3, [(1, 0), (2, 1)])
    await site.fetch("insert into reactor.steps (job_id, name, position) select min(id), 'a', 1 from reactor.jobs")
    path = f"/v1/pipelines/{pipeline}/events"
    async with start(Stream(f"{nginx.address}{path}", pipeline, tmp_path)) as client:

        async def shows(message: str) -> bool:
            return (await client.read()).shows(message)

        async def is_connected() -> bool:
            return bool((await client.read()).events)

        await until(is_connected, 60)
        await set_message(site, SEPARATORS)
        await until(lambda: shows(SEPARATORS), 60)

        site.stop("serve")
        with site.port_kept():
            await set_message(site, "while the server is away")
            await until(lambda: 502 in nginx.statuses(path), 60)
        await site.serve()
        await until(lambda: shows("while the server is away"), 60)

        site.stop("serve")
        await site.serve()
        await site.fetch("update reactor.steps set state = 'completed'")
        await site.fetch("update reactor.jobs set state = 'completed', finished_at = clock_timestamp()")
        await until(client.has_ended, 60)
        received = await client.read()
    names = {name for name, _ in received.events}
    assert names == {"snapshot", "job", "step", "pipeline", "end"}
    assert [name for name, data in received.events if not data] == [], "an empty message"
    assert received.rows == await stored(site, pipeline)
    assert nginx.statuses(path)[-1] in (200, 204)


@pytest.mark.parametrize("name", ["eventsource", "fetch-event-source", "httpx-sse"])
async def test_a_client_that_is_cut_off_within_an_event_gets_it_again(name: str, site: Site, tmp_path: Path) -> None:
    """Some store a cursor as soon as they read its line, before they have the event."""
    pipeline = await site.submit([NewJob(job_type="work")])
    async with proxy_for(urlsplit(site.address).netloc) as proxy:
        proxy.cut_at = b'"jobs": ['
        stream = Stream(f"{proxy.address}/v1/pipelines/{pipeline}/events", pipeline, tmp_path)
        async with CLIENTS[name](stream) as client:

            async def is_complete() -> bool:
                return len((await client.read()).rows) == 2

            await until(is_complete, 60)
    assert [request.status for request in proxy.requests] == [200, 200]
