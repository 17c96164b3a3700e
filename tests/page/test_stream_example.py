"""The example of docs/streams.md, run in a browser exactly as printed."""

import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from reactor.client.submit import NewJob
from reactor.testing import Databases
from tests.page.site import Site, site_on
from tests.support.documents import code_blocks
from tests.support.proxy import Proxy, proxy_for
from tests.support.stream_client import Watcher
from tests.support.until import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.pods]

# What the example expects of its page: an id and a source of tokens. The rest shows whether it is still active.
PAGE = """
<script>
  const id = "%s", bearer = { Authorization: "Bearer view-me", "Content-Type": "application/json" };
  async function newToken(pipeline_id) {
    const body = JSON.stringify({ pipeline_id, ttl_seconds: %d });
    return (await (await plain.fetch("/v1/stream-tokens", { method: "POST", headers: bearer, body })).json()).token;
  }
  const plain = { fetch: window.fetch.bind(window), setTimeout: window.setTimeout.bind(window) };
  const sources = [];
  let timers = 0, answers = 0;
  window.EventSource = class extends EventSource {
    constructor(address) { super(address); sources.push(this); }
  };
  window.setTimeout = (...given) => { timers += 1; return plain.setTimeout(...given); };
  window.fetch = async (...given) => {
    try { return await plain.fetch(...given); } finally { plain.setTimeout(() => { answers += 1; }); }
  };
</script>
<script>%s</script>
"""


@pytest_asyncio.fixture(loop_scope="session")
async def guarded(databases: Databases, tmp_path: Path) -> AsyncIterator[Site]:
    tokens = f"ann:view:{hashlib.sha256(b'view-me').hexdigest()}"
    async with site_on(databases, tmp_path, works=False, tokens=tokens, secret="s" * 40) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(guarded: Site) -> AsyncIterator[Proxy]:
    async with proxy_for(urlsplit(guarded.address).netloc) as proxy:
        yield proxy


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context()
    context.set_default_timeout(30000)
    yield await context.new_page()
    await context.close()


async def open_example(page: Page, proxy: Proxy, pipeline: str, token_seconds: int) -> None:
    proxy.pages["/example"] = PAGE % (pipeline, token_seconds, code_blocks("streams.md", "js")[0])
    await page.goto(f"{proxy.address}/example")


async def set_message(site: Site, message: str) -> None:
    await site.fetch("update reactor.jobs set status_message = $1", message)


async def finish(site: Site) -> None:
    await site.fetch("update reactor.jobs set state = 'completed', finished_at = clock_timestamp()")


async def stored(site: Site, pipeline: str) -> Any:
    async with httpx.AsyncClient(base_url=site.address, headers={"authorization": "Bearer view-me"}) as client:
        return (await client.get(f"/v1/pipelines/{pipeline}")).json()["jobs"]


async def shown(page: Page) -> Any:
    return await page.evaluate("[...jobs.values()]")


async def shows(page: Page, name: str, value: str) -> bool:
    rows = await shown(page)
    return bool(rows) and all(row[name] == value for row in rows)


def without_edges(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Edges are sent once: a job that changes has null there."""
    return [{name: value for name, value in row.items() if name != "depends_on"} for row in rows]


async def test_the_documented_example_survives_a_502_an_expired_token_and_a_restart(
    page: Page, guarded: Site, proxy: Proxy
) -> None:
    pipeline = await guarded.submit([NewJob(job_type="noop"), NewJob(job_type="noop")])
    proxy.fail_next(lambda request: request.is_event_source)
    await open_example(page, proxy, pipeline, token_seconds=1)
    await until(lambda: shows(page, "state", "pending"), 60)
    assert proxy.event_sources[0].status == 502

    async def is_expired() -> bool:
        async with httpx.AsyncClient(base_url=guarded.address) as client:
            return (await client.head(proxy.event_sources[-1].path)).status_code == 401

    await until(is_expired)
    before = len(proxy.event_sources)
    proxy.cut()
    await set_message(guarded, "after the cut")
    await until(lambda: shows(page, "status_message", "after the cut"), 60)
    assert proxy.event_sources[before].status == 401, "the browser reconnects with the old address"
    assert re.search("last_event_id=.", proxy.event_sources[-1].path), "it continues where it was"

    guarded.stop("serve")
    with guarded.port_kept():
        await set_message(guarded, "during the restart")
        await until(lambda: proxy.event_sources[-1].status == 502, 60)
    await guarded.serve()
    await until(lambda: shows(page, "status_message", "during the restart"), 60)

    await finish(guarded)
    await until(lambda: shows(page, "state", "completed"), 60)
    assert without_edges(await shown(page)) == without_edges(await stored(guarded, pipeline))
    await until(lambda: page.evaluate("sources.every((source) => source.readyState === EventSource.CLOSED)"))
    assert await page.evaluate("timers === sources.length - 1"), "it would open another stream"


async def test_the_documented_example_stops_at_204(page: Page, guarded: Site, proxy: Proxy) -> None:
    pipeline = await guarded.submit([NewJob(job_type="noop")])
    await finish(guarded)
    watcher = Watcher(f"/v1/pipelines/{pipeline}/events")
    await watcher.follow(guarded.address, headers={"authorization": "Bearer view-me"})
    await open_example(page, proxy, pipeline, token_seconds=60)
    await until(lambda: shows(page, "state", "completed"))
    await page.evaluate("(cursor) => follow(id, newToken, () => { throw 'an event'; }, cursor)", watcher.last_id)
    await until(lambda: page.evaluate("answers === 1"))
    assert [request.status for request in proxy.event_sources] == [200, 204]
    assert await page.evaluate("timers") == 0, "it would open another stream"
