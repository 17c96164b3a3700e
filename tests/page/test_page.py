"""The page in a real browser, with a real server, pod and PostgreSQL."""

import asyncio
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from reactor.client.submit import NewJob
from reactor.database.connection import connect
from reactor.testing import Databases
from tests.page.site import HERE, WATCH, Host, Site, Tab, site_on
from tests.support.until import until

# One event loop for all tests, since they share a browser.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.pods]
session = pytest_asyncio.fixture(scope="session", loop_scope="session")
each = pytest_asyncio.fixture(loop_scope="session")


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@session
async def site(databases: Databases, host: Host, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Shared by most tests: each uses pipelines of its own."""
    async with site_on(databases, tmp_path_factory.mktemp("site"), works=True, origins=host.origin) as site:
        yield site


@session
async def guarded(databases: Databases, host: Host, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Requires tokens: `operate-me` may view and operate, `view-only` may view."""
    entries = {"operate-me": "ann:view+operate", "view-only": "bob:view"}
    tokens = ",".join(f"{grant}:{hashlib.sha256(token.encode()).hexdigest()}" for token, grant in entries.items())
    settings = {"tokens": tokens, "secret": "s" * 40, "origins": host.origin}
    async with site_on(databases, tmp_path_factory.mktemp("guarded"), works=True, **settings) as site:
        yield site


@each
async def open_tab(browser: Browser, site: Site) -> AsyncIterator[Callable[..., Awaitable[Tab]]]:
    """Opens the page with this query. Other arguments are options of the browser context."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    async def open_one(query: str = "", base: str | None = None, **options: Any) -> Tab:
        context = await browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        context.set_default_timeout(30000)
        await context.add_init_script(WATCH)
        contexts.append(context)
        tabs.append(Tab(await context.new_page(), base or site.address))
        return await tabs[-1].open(query)

    yield open_one
    for tab in tabs:
        assert tab.errors == []
        assert tab.page.is_closed() or await tab.page.evaluate("window.violations") == []
    for context in contexts:
        await context.close()


# Generous, since a machine may be busy: the conditions usually hold within a fraction of a second.
expect.set_options(timeout=30000)

WEATHER = [
    NewJob(job_type="fetch.weather", payload={"seconds": 0.3}, scope="weather/1"),
    NewJob(job_type="forecast.region", payload={"seconds": 0.3}, scope="region/alps"),
    NewJob(job_type="forecast.region", payload={"seconds": 0.3}, scope="region/baltic"),
    NewJob(job_type="forecast.publish", payload={"seconds": 0.3}),
]
FAN = [(1, 0), (2, 0), (3, 1), (3, 2)]


async def test_a_pipeline_is_shown_live_from_submission_to_completion(open_tab: Any, site: Site) -> None:
    tab = await open_tab("?q=fetch.weather")
    await expect(tab.connection).to_have_text("Live")
    pipeline = await site.submit([replace(job, scope=None) for job in WEATHER], FAN)
    link = tab.page.locator(f"a[href*='{pipeline}']")
    await link.click()
    await expect(tab.page.locator(".node")).to_have_count(4)
    await expect(tab.state).to_have_text("completed")
    await expect(tab.page.locator(".overall .percent")).to_have_text("100 %")
    await expect(tab.node("forecast.publish")).to_contain_text("completed in")
    await expect(tab.page).to_have_title(re.compile("completed fetch.weather"))


async def test_a_job_added_later_joins_the_graph_and_keeps_the_other_edges(open_tab: Any, site: Site) -> None:
    """The stream sends a job's dependencies once, and not again when the job changes."""
    pipeline = await site.submit([replace(job, scope=None) for job in WEATHER], FAN)
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.state).to_have_text("completed")
    late = "insert into reactor.jobs (pipeline_id, job_type, run_after) values ($1::text::uuid, 'noop', 'infinity')"
    await site.fetch(late, pipeline)
    await expect(tab.page.locator(".node")).to_have_count(5)
    await expect(tab.page.locator(".edges .edge")).to_have_count(4)
    await tab.page.get_by_role("link", name="Timeline").click()
    await expect(tab.page.locator(".timeline")).to_contain_text(re.compile("waited .* for forecast.region #"))


async def test_running_jobs_are_shown_with_pod_progress_and_message(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="fetch.weather", payload={"seconds": 90})])
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.page.locator(".running-now")).to_contain_text(
        re.compile(r"\d+ % · on pod-1 for .* of 450 stations read")
    )
    await tab.page.get_by_role("button", name="Cancel pipeline").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Cancel pipeline").click()
    await expect(tab.state).to_have_text("cancelled")


async def test_buttons_cancel_and_retry_jobs_and_show_refusals(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="fetch.weather", payload={"seconds": 90}), WEATHER[3]], [(1, 0)])
    tab, other = await open_tab(f"?pipeline={pipeline}"), await open_tab(f"?pipeline={pipeline}")
    await tab.node("fetch.weather").click()
    panel = tab.page.locator(".panel")
    await expect(panel.locator(".badge")).to_have_text("running")
    await panel.get_by_role("button", name="Cancel").click()
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("wrong day")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    await expect(tab.page.locator(".notice")).to_contain_text("cancelled")
    await expect(panel.locator("section > .error")).to_contain_text("wrong day")
    await expect(other.state).to_have_text("cancelled")
    await tab.page.locator(".heading").get_by_role("button", name="Retry pipeline").click()
    await dialog.get_by_role("button", name="Retry pipeline").click()
    for each_tab in (tab, other):
        await expect(each_tab.state).to_have_text("running")
    job = await site.fetch("select min(id) from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    assert await site.fetch("select count(*) from reactor.audit where what in ('cancel', 'retry')") >= 2
    await panel.get_by_role("button", name="Recover").click()
    await dialog.get_by_role("button", name="Recover").click()
    # Its worker is alive, so the server refuses.
    await expect(tab.page.locator(".notice.danger")).to_contain_text(str(job))
    await panel.get_by_role("button", name="Cancel").click()
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    await expect(tab.state).to_have_text("cancelled")


async def test_the_page_reconnects_after_a_server_restart_and_catches_up(
    open_tab: Any, databases: Databases, tmp_path: Path
) -> None:
    async with site_on(databases, tmp_path, works=False) as lost:
        pipeline = await lost.submit([NewJob(job_type="fetch.weather", payload={"seconds": 0.1})])
        tab = await open_tab(f"?pipeline={pipeline}", base=lost.address)
        await expect(tab.connection).to_have_text("Live")
        await tab.page.evaluate("window.isTheSamePage = true")
        lost.stop("serve", signal.SIGKILL)
        with lost.port_kept():
            await expect(tab.connection).to_have_text("Reconnecting")
            banner = tab.page.locator(".banner")
            await expect(banner).to_contain_text("The server does not answer. Data as of")
            # The job finishes while no server can report it.
            await lost.work()
            done = "select count(*) = 1 from reactor.jobs where pipeline_id = $1::text::uuid and state = 'completed'"
            await until(lambda: lost.fetch(done, pipeline))
            await expect(tab.state).to_have_text("running")
            await lost.serve()
        await expect(tab.state).to_have_text("completed")
        await expect(tab.connection).to_have_text("Live")
        await expect(banner).to_be_hidden()
        assert await tab.page.evaluate("window.isTheSamePage")


async def test_a_refused_stream_is_shown_with_its_reason(open_tab: Any, databases: Databases, tmp_path: Path) -> None:
    tab = await open_tab(f"?pipeline={uuid4()}")
    await expect(tab.page.locator("h1")).to_have_text("No such pipeline")
    await expect(tab.connection).to_have_text("Unavailable")
    async with site_on(databases, tmp_path, works=False, max_streams="1") as narrow:
        first = await open_tab(base=narrow.address)
        await expect(first.connection).to_have_text("Live")
        second = await open_tab(base=narrow.address)
        await expect(second.page.locator(".banner")).to_contain_text(re.compile("streams.*Retrying", re.S))
        await first.page.close()
        first.errors = []
        await expect(second.connection).to_have_text("Live")


COUNT_STREAMS = """
window.streams = [];
const Counted = window.EventSource;
window.EventSource = class extends Counted {
  constructor(address) {
    super(address);
    window.streams.push(this);
  }
};
Object.defineProperty(document, "hidden", { get: () => window.isHidden ?? false });
"""
OPEN_STREAMS = "window.streams.filter((stream) => stream.readyState === 1).length"


async def test_a_tab_holds_one_stream_and_closes_it_while_hidden(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler", scope="hidden/tab")])
    tab = await open_tab()
    await tab.page.context.add_init_script(COUNT_STREAMS)
    await tab.page.clock.install()
    await tab.open("?q=hidden/tab")
    await tab.page.locator(f"a[href*='{pipeline}']").click()
    await tab.page.get_by_role("link", name="Overview").click()
    await tab.page.get_by_role("link", name="Pipelines").click()
    await expect(tab.connection).to_have_text("Live")
    # "Live" may still be the state of the previous view.
    await until(lambda: tab.page.evaluate(f"{OPEN_STREAMS} === 1"))
    await tab.page.go_back()
    await tab.page.go_back()
    await expect(tab.state).to_have_text("running")

    set_hidden = "(isHidden) => { window.isHidden = isHidden; document.dispatchEvent(new Event('visibilitychange')); }"
    await tab.page.evaluate(set_hidden, True)
    await tab.page.clock.fast_forward(61000)
    await expect(tab.connection).to_have_text("Paused")
    assert await tab.page.evaluate(OPEN_STREAMS) == 0
    await tab.page.evaluate("window.dispatchEvent(new Event('online'))")
    assert await tab.connection.text_content() == "Paused", "a network connection does not make the tab visible"
    await site.fetch("update reactor.jobs set state = 'cancelled' where pipeline_id = $1::text::uuid", pipeline)
    await tab.page.evaluate(set_hidden, False)
    await expect(tab.state).to_have_text("cancelled")
    await until(lambda: tab.page.evaluate(f"{OPEN_STREAMS} === 1"))


STOPWATCH = """
const Real = window.EventSource;
window.EventSource = class extends Real {
  constructor(address) {
    super(address);
    this.addEventListener("open", () => { window.openedAt = performance.now(); });
  }
};
new MutationObserver(() => {
  if (window.drawnAt || !document.querySelector(".node")) return;
  requestAnimationFrame(() => { window.drawnAt = performance.now(); });
}).observe(document, { childList: true, subtree: true });
"""


async def test_a_pipeline_of_ten_thousand_jobs_stays_usable(open_tab: Any, site: Site) -> None:
    count = 10_000
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    jobs = [NewJob(job_type="fetch.weather", run_after=tomorrow), *[NewJob(job_type="noop")] * (count - 2)]
    middle = range(1, count - 1)
    last = count - 1
    pipeline = await site.submit(
        [*jobs, NewJob(job_type="forecast.publish")],
        [*((each, 0) for each in middle), *((last, each) for each in middle)],
    )
    tab = await open_tab()
    await tab.page.context.add_init_script(STOPWATCH)

    async def opened() -> float:
        await tab.open(f"?pipeline={pipeline}")
        await expect(tab.node("9,998 \u00d7 noop")).to_be_visible()
        await expect(tab.page.locator(".node")).to_have_count(3)
        await until(lambda: tab.page.evaluate("window.drawnAt"))
        took: float = await tab.page.evaluate("window.drawnAt - window.openedAt")
        return took

    took = await at_best(opened, 2000)
    assert took < 2000, f"{took} ms from the response to the first drawing"

    await tab.node("9,998 \u00d7 noop").click()
    rows = tab.page.locator(".jobs .virtual-rows > .row")
    await expect(rows.first).to_be_visible()
    assert await rows.count() < 60
    scroll = """async () => {
      const times = [];
      const end = document.documentElement.scrollHeight;
      for (let at = 0; at < end; at += end / 60) {
        scrollTo(0, at);
        const began = performance.now();
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(performance.now() - began);
      }
      scrollTo(0, end);
      return times.sort((a, b) => a - b)[30];
    }"""
    usual = await at_best(lambda: tab.page.evaluate(scroll), 200)
    assert usual < 200, f"{usual} ms for two frames"
    last_id = await site.fetch("select max(id) - 1 from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    await expect(tab.page.locator(f".id:text-is('#{last_id}')")).to_be_visible()
    assert await rows.count() < 60

    # Every row changes several times, and the memory in use does not grow.
    devtools = await tab.page.context.new_cdp_session(tab.page)
    touch = "update reactor.jobs set status_message = $2 where pipeline_id = $1::text::uuid"

    async def megabytes_below(limit: float) -> float | None:
        await devtools.send("HeapProfiler.collectGarbage")
        usage = await devtools.send("Runtime.getHeapUsage")
        size = float(usage["usedSize"]) / 1e6
        return size if size < limit else None

    limit = 120.0
    for word in ("first", "second"):
        await site.fetch(touch, pipeline, f"the {word} time")
        await expect(rows.last).to_contain_text(f"the {word} time")
        # The visible row may be drawn before the last of the others has arrived.
        size = await until(lambda limit=limit: megabytes_below(limit))
        limit = min(limit, size * 1.3)


async def at_best(measure: Callable[[], Awaitable[float]], below: float) -> float:
    """The least of up to five measurements: a busy machine spoils one of them, slow code spoils all."""
    found = [await measure()]
    while min(found) >= below and len(found) < 5:
        found.append(await measure())
    return min(found)


VIEWS = [
    "",
    "?view=overview",
    "?pipeline={0}",
    "?pipeline={0}&tab=jobs",
    "?pipeline={0}&tab=timeline",
    "?pipeline={0}&tab=errors",
]


@each
async def broken(site: Site) -> str:
    """A pipeline with steps, an error, earlier attempts and a cancelled job."""
    days = [f"2026-01-0{day}" for day in range(1, 6)]
    payload = {"days": days, "models": ["aurora", "boreas"], "broken": ["2026-01-03/boreas"]}
    jobs = [
        NewJob(job_type="simulate.year", payload=payload, scope="module=3/year=2026", tags=["nightly"]),
        NewJob(job_type="forecast.region", payload={"failures": 9, "error": "no solution"}, max_attempts=2),
        NewJob(job_type="forecast.publish"),
    ]
    pipeline = await site.submit(jobs, [(2, 1)])
    ended = "select count(*) = 3 from reactor.jobs where pipeline_id = $1::text::uuid and finished_at is not null"
    await until(lambda: site.fetch(ended, pipeline), within_seconds=60)
    return pipeline


async def test_steps_errors_attempts_and_waiting_times_are_shown(open_tab: Any, site: Site, broken: str) -> None:
    tab = await open_tab(f"?pipeline={broken}")
    await tab.node("simulate.year").click()
    grid = tab.page.locator(".panel table.grid")
    await expect(grid.locator("thead th")).to_have_text(["aurora", "boreas"])
    await expect(grid.locator("tbody tr")).to_have_count(5)
    await grid.get_by_role("button", name="2026-01-03/boreas: failed").click()
    await expect(tab.page.locator(".step-detail .error")).to_contain_text("no boundary values")
    await tab.node("forecast.region").click()
    await expect(tab.page.locator(".panel")).to_contain_text("Attempt 1")
    await expect(tab.page.locator(".panel .attempts .error")).to_contain_text("no solution")
    await expect(tab.page.locator(".panel")).to_contain_text("on pod-1")
    await tab.page.get_by_role("link", name="Errors 2").click()
    await expect(tab.page.locator(".errors")).to_contain_text("failed after 2 attempts, on pod-1")
    await expect(tab.page.locator(".errors")).to_contain_text("step 2026-01-03/boreas")
    await tab.page.get_by_role("link", name="Close").click()
    await tab.page.get_by_role("link", name="Timeline").click()
    await expect(tab.page.locator(".timeline")).to_contain_text(re.compile("waited .* for forecast.region #"))


async def test_the_reason_is_shown_when_nothing_runs(open_tab: Any, site: Site) -> None:
    exact = {"id": 1234567890123456789, "digits": 19}
    job = NewJob(job_type="unknown.type", payload=exact, meta={"region": "eu"}, submitted_by="alice")
    pipeline = await site.submit([job])
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.page.locator(".running-now")).to_contain_text("handler for unknown.type")
    await tab.node("unknown.type").click()
    await expect(tab.page.locator(".panel .why")).to_contain_text("handler for unknown.type")
    await expect(tab.page.get_by_label("Payload")).to_have_text(json.dumps(exact, indent=2))
    await expect(tab.page.get_by_label("Meta")).to_have_text(json.dumps({"region": "eu"}, indent=2))
    await expect(tab.page.locator(".panel .facts")).to_contain_text("Submitteralice")


async def test_the_overview_shows_pods_queues_and_job_types(open_tab: Any, site: Site, broken: str) -> None:
    await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab("?view=overview")
    pod = tab.page.get_by_role("region", name="Pods").get_by_role("row", name="pod-1")
    await expect(pod).to_contain_text(re.compile(r"\d+ of 10"))
    await expect(pod).to_contain_text("simulate.year")
    await expect(tab.page.get_by_role("region", name="Queues")).to_contain_text("default")
    await expect(tab.page.get_by_role("region", name="by type")).to_contain_text("forecast.region")
    await expect(tab.page.locator("figure.chart svg")).to_have_count(4)
    await expect(tab.page.locator(".tile", has_text="Failed").locator("b")).not_to_have_text("0")
    await expect(tab.page.locator("main > .empty")).to_be_hidden()


async def test_refused_figures_are_shown_as_unavailable_and_not_as_zero(open_tab: Any) -> None:
    tab = await open_tab()

    async def refuse(route: Any) -> None:
        await route.fulfill(status=503, json={"detail": "The database does not answer."})

    for path in ("queues", "workers", "stats*", "stats/history*"):
        await tab.page.route(f"**/v1/{path}", refuse)
    await tab.open("?view=overview")
    await expect(tab.page.locator("main > .empty")).to_contain_text("The database does not answer.")
    await expect(tab.page.locator(".tile b")).to_have_text(["\u2013"] * 6)
    await expect(tab.page.locator(".tables .empty")).to_have_text(["unavailable"] * 3)
    queued = tab.page.get_by_role("img", name="Queued")
    await expect(queued).to_have_accessible_name("Queued. due and not running: no data")


async def test_charts_start_at_zero_and_show_gaps(open_tab: Any) -> None:
    tab = await open_tab("?view=overview")
    scales, parts, drawn = await tab.page.evaluate("""async () => {
      const { chart, scale, segments } = await import(new URL("chart.js", location.href));
      const points = [[0, 1], [10, 2], [20, null], [30, 3], [40, 4], [90, 5]];
      const series = [{ name: "n", kind: "first", points }];
      const figure = chart({ title: "t", unit: "u", from: 0, to: 100, gap: 15, series });
      const marks = [0, 0.7, 9, 1234].map((largest) => scale(largest).marks);
      return [marks, segments(points, 15).map((part) => part.length), figure.querySelectorAll(".line").length];
    }""")
    assert scales == [[0, 1], [0, 0.5, 1], [0, 5, 10], [0, 500, 1000, 1500]]
    assert parts == [2, 2, 1]
    assert drawn == 2


async def test_the_address_restores_a_view_and_back_works(open_tab: Any, site: Site, broken: str) -> None:
    done = await site.submit([NewJob(job_type="noop", scope="only/this/one")])
    tab = await open_tab()
    await tab.page.get_by_placeholder("Search").fill("only/this")
    await expect(tab.page).to_have_url(re.compile(r"q=only%2Fthis"))
    await expect(tab.page.locator(".pipelines .virtual-rows > .row")).to_have_count(1)
    await tab.page.get_by_role("button", name="completed").click()
    shared = await open_tab(tab.page.url.removeprefix(site.address))
    await expect(shared.page.locator(f"a[href*='{done}']")).to_be_visible()
    await expect(shared.page.get_by_placeholder("Search")).to_have_value("only/this")
    await shared.page.get_by_role("button", name="failed").click()
    await expect(shared.page.locator(".empty")).to_contain_text("No pipelines match")
    await shared.page.go_back()
    await shared.page.locator(f"a[href*='{done}']").click()
    await expect(shared.state).to_have_text("completed")
    await shared.page.go_back()
    await expect(shared.page.get_by_placeholder("Search")).to_have_value("only/this")


async def test_the_page_can_be_used_with_the_keyboard_alone(open_tab: Any, site: Site, broken: str) -> None:
    tab = await open_tab("?q=simulate.year")
    press = tab.page.keyboard.press
    await expect(tab.page.locator(f"a[href*='{broken}']")).to_be_visible()
    await tab.page.get_by_placeholder("Search").focus()
    for _ in range(12):
        await press("Tab")
        if await tab.page.evaluate("document.activeElement.classList.contains('row-link')"):
            break
    for _ in range(50):
        if broken in await tab.page.evaluate("document.activeElement.href ?? ''"):
            break
        await press("ArrowDown")
    await press("Enter")
    await expect(tab.node("simulate.year")).to_be_visible()
    for _ in range(12):
        await press("Tab")
        if await tab.page.evaluate("document.activeElement.classList.contains('node')"):
            break
    await press("ArrowDown")
    await press("ArrowRight")
    await press("ArrowLeft")
    await press("Enter")
    panel = tab.page.locator(".panel")
    await expect(panel.locator("h2")).to_contain_text("forecast.region")
    await expect(panel.locator("h2")).to_be_focused()
    await press("Tab")
    await expect(panel.get_by_role("button", name="Retry")).to_be_focused()
    await press("Enter")
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    await press("Escape")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await expect(panel.get_by_role("button", name="Retry")).to_be_focused()
    await press("Escape")
    await expect(panel).to_be_hidden()
    await expect(tab.page.get_by_role("link", name="Graph")).to_be_focused()


async def test_no_view_overflows_on_a_phone(open_tab: Any, broken: str) -> None:
    tab = await open_tab(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for view in VIEWS:
        await tab.open(view.format(broken))
        await expect(tab.connection).to_have_text("Live")
        await expect(tab.page.locator("main .empty:visible", has_text="Loading")).to_have_count(0)
        assert await tab.page.evaluate("document.documentElement.scrollWidth") <= 390, view
    await tab.page.get_by_role("link", name="simulate.year").click()
    await expect(tab.page.locator(".panel table.grid")).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_accessibility_checks_find_no_serious_violations(open_tab: Any, broken: str, scheme: str) -> None:
    tab = await open_tab(color_scheme=scheme)
    for view in VIEWS:
        await tab.open(view.format(broken))
        await expect(tab.connection).to_have_text("Live")
        await expect(tab.page.locator("main .empty:visible", has_text="Loading")).to_have_count(0)
        if view == "?pipeline={0}":
            await tab.node("forecast.region").click()
            await expect(tab.page.locator(".attempts .error")).to_be_visible()
            assert await serious(tab) == []
            await tab.page.locator(".panel").get_by_role("button", name="Retry").click()
        assert await serious(tab) == [], view


async def serious(tab: Tab) -> list[tuple[str, str]]:
    """Accessibility rules with serious violations, and the first violation of each."""
    found = (await Axe().run(tab.page)).response["violations"]
    return [(rule["id"], rule["nodes"][0]["html"]) for rule in found if rule["impact"] in ("serious", "critical")]


HOSTILE = [
    '<img src=x onerror="window.pwned=1">',
    "<script>window.pwned=1</script>",
    '"><svg onload=window.pwned=1>',
    "' onmouseover='window.pwned=1",
    "javascript:window.pwned=1",
    "</pre></style><style>*{display:none}</style>",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1}",
    "‮abc​ é̂̂̂ 🏴‍☠️",
    "__proto__",
]


async def open_job(open_tab: Any, site: Site, **payload: Any) -> tuple[Tab, int]:
    """The panel of a new job that logs."""
    pipeline = await site.submit([NewJob(job_type="talk", payload=payload)])
    job_id = await site.fetch("select max(id) from reactor.jobs where job_type = 'talk'")
    return await open_tab(f"?pipeline={pipeline}&job={job_id}"), job_id


async def test_the_log_of_a_job_is_shown_by_attempt_and_step_while_it_runs(open_tab: Any, site: Site) -> None:
    """J17"""
    tab, job_id = await open_job(open_tab, site, waits=True)
    logs = tab.page.locator(".logs")
    await expect(logs.locator(".log-line", has_text="in baltic")).to_be_visible()
    await expect(logs.locator(".log-attempt")).to_have_text(["Attempt 1", "Attempt 2"])
    await expect(logs.locator("pre.error")).to_contain_text("the station does not answer")
    warning = logs.locator(".log-line", has_text="in alps")
    await expect(warning.get_by_role("img", name="warning")).to_be_visible()
    await expect(warning.locator(".log-step")).to_have_text("day/alps")
    await expect(warning.locator("time")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$"))
    await site.fetch("update reactor.jobs set meta = '{\"may_end\": true}' where id = $1 returning id", job_id)
    await expect(logs.locator(".log-line").last).to_contain_text("last words")
    await expect(logs.locator(".log-line")).to_have_count(6)


async def test_the_log_shows_the_lines_of_a_selected_step_and_level(open_tab: Any, site: Site) -> None:
    tab, _ = await open_job(open_tab, site, once=True)
    logs = tab.page.locator(".logs")
    await expect(logs.locator(".log-line")).to_have_count(4)
    await tab.page.locator(".steps .step").last.click()
    await expect(logs.locator(".log-line")).to_have_text([re.compile("in baltic")])
    await logs.get_by_role("button", name="All steps").click()
    await expect(logs.locator(".log-line")).to_have_count(4)
    await logs.get_by_label("Lowest level").select_option("error")
    await expect(logs.locator(".log-line")).to_have_text([re.compile("last words")])


async def test_a_long_log_shows_its_end_and_older_lines_on_demand(open_tab: Any, site: Site) -> None:
    """What the reader looks at stays in its place."""
    tab, _ = await open_job(open_tab, site, once=True, lines=150)
    logs = tab.page.locator(".logs")
    await expect(logs.locator(".log-line").last).to_contain_text("last words")
    await expect(logs.locator(".log-line")).to_have_count(200)
    scroll = logs.locator(".scroll")
    at_end = "element => element.scrollHeight - element.scrollTop - element.clientHeight < 2"
    assert await scroll.evaluate(at_end)
    first = logs.locator(".log-line").first
    text = await first.text_content()
    await scroll.evaluate("element => { element.scrollTop = 0 }")
    await logs.get_by_role("button", name="Older lines").click()
    await expect(logs.locator(".log-line")).to_have_count(304)
    again = logs.locator(".log-line", has_text=str(text))
    top = "element => element.getBoundingClientRect().top - element.closest('.scroll').getBoundingClientRect().top"
    assert abs(await again.first.evaluate(top)) < 40


async def test_new_lines_respect_where_the_reader_has_scrolled_to(open_tab: Any, site: Site) -> None:
    tab, job_id = await open_job(open_tab, site, once=True, lines=60, waits=True)
    logs = tab.page.locator(".logs")
    await expect(logs.locator(".log-line", has_text="baltic line 59")).to_be_visible()
    scroll = logs.locator(".scroll")
    await scroll.evaluate("element => { element.scrollTop = 40 }")
    await site.fetch("update reactor.jobs set meta = '{\"may_end\": true}' where id = $1 returning id", job_id)
    await expect(logs.locator(".log-line").last).to_contain_text("last words")
    assert await scroll.evaluate("element => element.scrollTop") == 40


async def test_a_hostile_log_is_shown_as_text(open_tab: Any, site: Site) -> None:
    text = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e{{x}}"
    tab, _ = await open_job(open_tab, site, text=text, once=True)
    line = tab.page.locator(".log-line").first
    await expect(line).to_contain_text("<img src=x onerror=alert(1)><script>alert(2)</script>")
    assert await tab.page.locator(".logs img, .logs script").count() == 0


async def test_hostile_text_is_shown_as_text(open_tab: Any, site: Site) -> None:
    jobs = [
        NewJob(job_type="say", payload={"text": text, text: [text]}, scope=text, tags=[text], max_attempts=1)
        for text in HOSTILE
    ]
    pipeline = await site.submit([*jobs, *(NewJob(job_type=text, queue=text) for text in HOSTILE)])
    first = await site.fetch("select min(id) from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    tab = await open_tab(f"?pipeline={pipeline}")
    panel = tab.page.locator(".panel")
    for number, text in enumerate(HOSTILE):
        await expect(tab.page.locator(".node .name", has_text=text)).to_have_count(1)
        await tab.page.locator(".node").nth(number).click()
        await expect(panel.locator("h2")).to_have_text(f"say #{first + number}")
        await expect(panel.locator(".badge")).to_have_text("failed")
        await expect(panel.locator(".message")).to_contain_text(text)
        await expect(panel.locator("section > .error")).to_contain_text(text)
        await expect(panel.locator(".data").first).to_contain_text(json.dumps(text, ensure_ascii=False)[1:-1])
        await panel.locator(".step").first.click()
        await expect(panel.locator(".step-detail")).to_contain_text(text)
    for tab_name in ("jobs", "timeline", "errors"):
        for text in HOSTILE[:3]:
            await tab.open(f"?pipeline={pipeline}&tab={tab_name}&find=&group={quote(text)}&state=")
            await expect(tab.page.locator(".content")).to_contain_text(text)
    for query in ("?view=overview", f"?q={quote(HOSTILE[0])}", f"?scope={quote(HOSTILE[0])}"):
        await tab.open(query)
        await expect(tab.page.locator("main")).to_contain_text(HOSTILE[0])
    assert await tab.page.evaluate("window.pwned ?? null") is None


async def test_a_token_is_asked_for_once_and_its_permissions_decide_which_buttons_show(
    open_tab: Any, guarded: Site
) -> None:
    pipeline = await guarded.submit([NewJob(job_type="no.handler")])
    for token, buttons in (("view-only", 0), ("operate-me", 1)):
        tab = await open_tab(f"?pipeline={pipeline}", base=guarded.address)
        await tab.page.get_by_label("Token").fill("wrong")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("alert")).to_contain_text("did not accept")
        await tab.page.get_by_label("Token").fill(token)
        await tab.page.keyboard.press("Enter")
        await expect(tab.connection).to_have_text("Live")
        await tab.page.reload()
        await expect(tab.state).to_have_text("running")
        await expect(tab.page.get_by_role("button", name="Cancel pipeline")).to_have_count(buttons)
        kept = await tab.page.evaluate("JSON.stringify([{ ...localStorage }, document.cookie, location.href])")
        assert token not in kept
        assert token not in guarded.log


async def test_the_documented_progress_element_works_on_another_origin(open_tab: Any, site: Site, host: Host) -> None:
    example = re.findall(r"```html\n(.*?)```", (HERE.parents[1] / "docs" / "page.md").read_text(), re.S)[0]
    pipeline = await site.submit(WEATHER, FAN)
    example = re.sub(r'pipeline="[^"]+"', f'pipeline="{pipeline}"', example)
    host.pages["/"] = example.replace("https://reactor.example.com/", site.address)
    tab = await open_tab(base=host.address)
    await expect(tab.page.locator("#outcome")).to_have_text("The import is completed.")
    progress = tab.page.locator("reactor-progress")
    await expect(progress).to_have_attribute("data-state", "completed")
    await expect(progress.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    await expect(progress).to_contain_text("completed · 4 of 4 jobs")


async def test_the_progress_element_requests_a_new_token(open_tab: Any, guarded: Site, host: Host) -> None:
    pipeline = await guarded.submit([NewJob(job_type="fetch.weather", payload={"seconds": 0.2})])
    request = urllib.request.Request(
        f"{guarded.address}v1/stream-tokens",
        json.dumps({"pipeline_id": pipeline}).encode(),
        {"Authorization": "Bearer view-only", "Content-Type": "application/json"},
    )
    with await asyncio.to_thread(urllib.request.urlopen, request) as answer:
        token = json.load(answer)["token"]
    host.pages["/expired"] = f"""
        <script type="module" src="{guarded.address}reactor-progress.js"></script>
        <reactor-progress pipeline="{pipeline}" token="expired"></reactor-progress>
        <script type="module">
          const progress = document.querySelector("reactor-progress");
          const heard = [];
          for (const name of ["error", "tokenneeded", "progress", "end"]) {{
            progress.addEventListener(name, () => {{ heard.push(name); document.title = heard.join(" "); }});
          }}
          progress.addEventListener("tokenneeded", () => {{ progress.token = "{token}"; }});
        </script>"""
    tab = await open_tab("expired", base=host.address)
    await expect(tab.page).to_have_title(re.compile("^error tokenneeded progress .*end$"))


LATER = "insert into reactor.jobs (pipeline_id, job_type, run_after) values ($1::text::uuid, 'noop', 'infinity')"
FAR = datetime.now(UTC) + timedelta(days=1)


async def cancel(tab: Tab) -> None:
    await tab.page.get_by_role("button", name="Cancel pipeline").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Cancel pipeline").click()
    await expect(tab.state).not_to_have_text("running")


async def test_jobs_are_listed_in_id_order_even_if_they_commit_out_of_order(open_tab: Any, site: Site) -> None:
    """A transaction that took its ids earlier may commit later."""
    early = await site.fetch("select nextval(pg_get_serial_sequence('reactor.jobs', 'id'))")
    pipeline = await site.submit([NewJob(job_type="noop")])
    tab = await open_tab(f"?pipeline={pipeline}&tab=jobs")
    await expect(tab.page.locator("h1")).to_have_text("noop")
    late = (
        "insert into reactor.jobs (id, pipeline_id, job_type, run_after) overriding system value "
        "values ($2, $1::text::uuid, 'fetch.weather', 'infinity')"
    )
    await site.fetch(late, pipeline, early)
    await expect(tab.page.locator(".jobs .virtual-rows .row-link")).to_have_text(["fetch.weather", "noop"])
    await expect(tab.page.locator("h1")).to_have_text("fetch.weather")


async def test_an_adopted_row_does_not_name_the_pipeline(open_tab: Any, site: Site) -> None:
    adopted = "insert into reactor.jobs (job_type) values (null) returning pipeline_id::text"
    pipeline = await site.fetch(adopted)
    await site.fetch(LATER, pipeline)
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.page.locator("h1")).to_have_text("noop")
    await expect(tab.page).to_have_title("0 % noop · reactor")
    await expect(tab.page.locator(".running-now")).to_contain_text(re.compile(r"^Nothing is running. Next: noop #\d+"))


async def test_errors_show_the_failed_attempt_and_its_age(open_tab: Any, site: Site) -> None:
    again = NewJob(job_type="forecast.region", payload={"seconds": 90, "failures": 1})
    steps = {"days": ["monday", "tuesday"], "models": ["a"], "broken": ["monday/a"], "slow": ["tuesday/a"]}
    failing = NewJob(job_type="check.station", payload={"failures": 1})
    pipeline = await site.submit([again, NewJob(job_type="simulate.year", payload=steps), failing])
    tab = await open_tab()
    await tab.page.clock.install()
    await tab.open(f"?pipeline={pipeline}&tab=errors")
    errors = tab.page.locator(".errors")
    await expect(errors).to_contain_text(
        re.compile(r"forecast.region #\d+ attempt 1 failed, attempt 2 running, on pod-1")
    )
    await expect(errors).to_contain_text(re.compile(r"simulate.year #\d+ attempt 1 running, on pod-1"))
    await expect(errors).to_contain_text(re.compile(r"check.station #\d+ failed after 1 attempt, on pod-1"))
    await tab.page.clock.fast_forward(600_000)
    await expect(errors).to_contain_text("10 min ago")
    await cancel(tab)


async def test_job_links_keep_the_current_tab(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="fetch.weather", payload={"seconds": 90}), WEATHER[3]], [(1, 0)])
    tab = await open_tab(f"?pipeline={pipeline}")
    running = tab.page.locator(".running-now").get_by_role("link", name="fetch.weather")
    await tab.node("forecast.publish").click()
    needed = tab.page.locator(".panel .plain-list").get_by_role("link", name="fetch.weather")
    await expect(needed).to_be_visible()
    await tab.page.get_by_role("link", name="Timeline").click()
    for link in (running, needed):
        await expect(link).to_have_attribute("href", re.compile("tab=timeline"))
    await cancel(tab)


async def test_the_panel_never_shows_details_of_another_job(open_tab: Any, site: Site) -> None:
    first, second = (NewJob(job_type="no.handler", payload={"of": word}) for word in ("first", "second"))
    pipeline = await site.submit([first, second], [(1, 0)])
    job = await site.fetch("select max(id) from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    tab = await open_tab(f"?pipeline={pipeline}")
    panel = tab.page.locator(".panel")
    await tab.node("waiting for").click()
    await expect(panel.locator(".data")).to_contain_text("second")
    await expect(panel).to_contain_text("Depends on")
    await tab.page.route("**/v1/jobs/*", lambda route: route.abort())
    await tab.node("queued").click()
    await expect(panel).to_contain_text("The server does not answer.")
    await expect(panel.locator("h2")).not_to_contain_text(str(job))
    await expect(panel).not_to_contain_text("second")
    await expect(panel).not_to_contain_text("Depends on")


async def test_a_late_response_does_not_replace_a_newer_one(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    job = await site.fetch("select id from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    tab = await open_tab(f"?pipeline={pipeline}")
    held: list[Any] = []
    overtaken = asyncio.Event()

    async def answer_first_request_last(route: Any) -> None:
        answer = await route.fetch()
        held.append(answer)
        if answer is held[0]:
            await overtaken.wait()
        await route.fulfill(response=answer)

    await tab.page.route(f"**/v1/jobs/{job}", answer_first_request_last)
    await tab.node("no.handler").click()
    ended = "update reactor.jobs set state = 'completed', finished_at = now(), result = '{\"sum\": 42}' where id = $1"
    await until(lambda: held)
    await site.fetch(ended, job)
    result = tab.page.locator(".panel .data", has_text="42")
    await expect(result).to_be_visible()
    async with tab.page.expect_response(f"**/v1/jobs/{job}"):
        overtaken.set()
    await tab.page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50))")
    await expect(result).to_be_visible()


async def test_an_invalid_job_id_in_the_address_requests_nothing(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab()
    requested: list[str] = []
    tab.page.on("request", lambda request: requested.append(request.url))
    await tab.open(f"?pipeline={pipeline}&job=abc")
    panel = tab.page.locator(".panel")
    await expect(panel).to_contain_text("No such job in this pipeline.")
    await expect(panel.locator(".badge")).to_be_hidden()
    assert [url for url in requested if "NaN" in url] == []


@pytest.mark.parametrize("query", ["?view=toString", "?view=pipeline", "?view=unknown"])
async def test_an_unknown_view_in_the_address_shows_the_pipelines(open_tab: Any, query: str) -> None:
    tab = await open_tab(query)
    await expect(tab.page.locator("h1")).to_have_text("Pipelines")
    await expect(tab.connection).to_have_text("Live")


async def test_an_unknown_tab_or_range_in_the_address_shows_the_default(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab(f"?pipeline={pipeline}&tab=constructor")
    await expect(tab.node("no.handler")).to_be_visible()
    await tab.open("?view=overview&minutes=constructor")
    await expect(tab.page.get_by_role("link", name="last hour")).to_have_attribute("aria-current", "true")
    await expect(tab.page.locator(".tile", has_text="Finished").first).to_contain_text("in the last hour")


async def test_a_deleted_pipeline_is_shown_as_unavailable(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.node("no.handler")).to_be_visible()
    await site.fetch("delete from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    await tab.page.evaluate("window.dispatchEvent(new Event('online'))")
    await expect(tab.connection).to_have_text("Unavailable")
    await expect(tab.page.locator("main > .empty")).to_contain_text(pipeline)
    await expect(tab.page.get_by_role("button", name="Cancel pipeline")).to_be_hidden()


async def test_an_error_from_a_proxy_is_retried(open_tab: Any, site: Site) -> None:
    """A proxy answers 404 while no server is behind it."""
    tab = await open_tab("?view=overview")

    async def answer_as_proxy(route: Any) -> None:
        await route.fulfill(status=404, body="default backend")

    await tab.page.route("**/v1/events?*", answer_as_proxy)
    await tab.open()
    await expect(tab.page.locator(".banner")).to_contain_text("The server answered 404.")
    await tab.page.unroute("**/v1/events?*")
    await expect(tab.connection).to_have_text("Live")


async def test_a_tab_opened_in_the_background_closes_its_stream(open_tab: Any, site: Site) -> None:
    tab = await open_tab()
    await tab.page.context.add_init_script(f"{COUNT_STREAMS} window.isHidden = true;")
    await tab.page.clock.install()
    await tab.open()
    await expect(tab.connection).to_have_text("Live")
    await tab.page.clock.fast_forward(61000)
    await expect(tab.connection).to_have_text("Paused")
    assert await tab.page.evaluate(OPEN_STREAMS) == 0


async def test_a_hidden_tab_stays_paused_while_it_diagnoses_a_failed_stream(open_tab: Any, site: Site) -> None:
    tab = await open_tab("?view=overview")
    held: list[Any] = []

    async def fail(route: Any) -> None:
        if route.request.resource_type == "eventsource":
            await route.abort()
        else:
            held.append(route)

    await tab.page.context.add_init_script(f"{COUNT_STREAMS} window.isHidden = true;")
    await tab.page.clock.install()
    await tab.page.route("**/v1/events?*", fail)
    await tab.open()
    await until(lambda: held)
    await tab.page.clock.fast_forward(61000)
    await expect(tab.connection).to_have_text("Paused")
    await held[0].abort()
    await tab.page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert await tab.connection.text_content() == "Paused"


async def test_a_closed_view_sends_no_more_requests(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab()
    await tab.page.clock.install()
    requested: list[Any] = []
    await tab.page.route("**/v1/jobs/*/why", lambda route: requested.append(route))
    await tab.open(f"?pipeline={pipeline}")
    await expect(tab.node("no.handler")).to_be_visible()
    while not requested:
        await tab.page.clock.run_for(500)
    await tab.page.get_by_role("link", name="Overview").click()
    await expect(tab.page.locator("h1")).to_have_text("Overview")
    async with tab.page.expect_response("**/v1/jobs/*/why"):
        await requested[0].continue_()
    await tab.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await tab.page.clock.run_for(20_000)
    assert len(requested) == 1


async def test_a_failed_list_request_is_retried(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler", scope="load/again")])
    tab = await open_tab()
    await expect(tab.connection).to_have_text("Live")
    await tab.page.route("**/v1/pipelines?*", lambda route: route.abort())
    await tab.page.get_by_placeholder("Search").fill("load/again")
    await expect(tab.page.locator(".empty")).to_contain_text("The server does not answer.")
    await tab.page.unroute("**/v1/pipelines?*")
    await expect(tab.page.locator(f"a[href*='{pipeline}']")).to_be_visible()


async def test_loading_older_pipelines_continues_while_new_ones_arrive(open_tab: Any, site: Site) -> None:
    many = (
        "insert into reactor.jobs (job_type, scope, state) "
        "select 'no.handler', 'many/' || n, 'cancelled' from generate_series(1, 250) n"
    )
    await site.fetch(many)
    tab = await open_tab("?q=many/")
    shown = tab.page.locator(".heading .muted")
    older = tab.page.get_by_role("button", name="Load older")
    await expect(shown).to_contain_text("100 shown")
    await older.click()
    await expect(shown).to_contain_text("200 shown")
    await site.submit([NewJob(job_type="no.handler", scope="many/new")])
    await expect(shown).to_contain_text("201 shown")
    await older.click()
    await expect(shown).to_contain_text("251 shown")
    await expect(older).to_be_hidden()


async def test_a_list_filtered_by_state_is_refilled_when_pipelines_leave_the_state(
    open_tab: Any, databases: Databases, tmp_path: Path
) -> None:
    async with site_on(databases, tmp_path, works=False) as busy:
        await busy.fetch("insert into reactor.jobs (job_type) select 'no.handler' from generate_series(1, 150)")
        tab = await open_tab("?state=running", base=busy.address)
        shown = tab.page.locator(".heading .muted")
        await expect(shown).to_have_text("100 shown, 100 running")
        await expect(tab.connection).to_have_text("Live")
        await busy.fetch("update reactor.jobs set state = 'cancelled' where id > 50")
        await expect(shown).to_have_text("50 shown, 50 running")
        await tab.page.close()


COUNT_RESETS = """
window.resets = 0;
const Heard = window.EventSource;
window.EventSource = class extends Heard {
  constructor(address) {
    super(address);
    this.addEventListener("reset", () => { window.resets += 1; });
  }
};
"""


async def test_a_filtered_list_survives_resets_of_a_busy_stream(open_tab: Any, site: Site) -> None:
    """Too many changes at once reset the stream, again and again: the requested list is not lost."""
    burst = "insert into reactor.jobs (job_type, state) select 'burst', 'cancelled' from generate_series(1, 600)"
    pipeline = await site.submit([NewJob(job_type="no.handler", scope="in/the/burst")])
    tab = await open_tab("?view=overview")
    held: list[Any] = []
    await tab.page.context.add_init_script(COUNT_RESETS)
    await tab.page.route("**/v1/pipelines?*", lambda route: held.append(route))
    await tab.open("?scope=in/the/burst")
    await expect(tab.connection).to_have_text("Live")
    row = tab.page.locator(f"a[href*='{pipeline}']")
    for number in range(2):
        await until(lambda number=number: len(held) > number)
        await site.fetch(burst)
        await until(lambda number=number: tab.page.evaluate(f"window.resets > {number}"))
        await held[number].continue_()
        await expect(row).to_be_visible()
    # The list was requested again, since the first response may have been older than the burst.
    assert len(held) >= 2


async def test_a_late_list_response_does_not_undo_newer_events(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    tab = await open_tab("?view=overview")  # requests no list
    held: list[tuple[Any, Any]] = []

    async def hold(route: Any) -> None:
        held.append((route, await route.fetch()))

    await tab.page.route("**/v1/pipelines?*", hold)
    await tab.open()
    row = tab.page.locator(".pipelines .virtual-rows > .row", has=tab.page.locator(f"a[href*='{pipeline}']"))
    await expect(row).to_contain_text("running")
    await until(lambda: held)
    await site.fetch("update reactor.jobs set state = 'cancelled' where pipeline_id = $1::text::uuid", pipeline)
    await expect(row).to_contain_text("cancelled")
    route, answer = held[0]
    async with tab.page.expect_response("**/v1/pipelines?*"):
        await route.fulfill(response=answer)
    await tab.page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50))")
    await expect(row).to_contain_text("cancelled")


async def test_overview_updates_keep_the_focus(open_tab: Any, site: Site, broken: str) -> None:
    await site.submit([NewJob(job_type="no.handler", queue="opened-before")])
    tab = await open_tab("?view=overview")
    queues = tab.page.get_by_role("region", name="Queues")
    for number, focused in enumerate((queues, tab.page.get_by_label("Job type"))):
        await focused.focus()
        await site.submit([NewJob(job_type="no.handler", queue=f"opened-later-{number}")])
        await expect(queues).to_contain_text(f"opened-later-{number}")
        await expect(focused).to_be_focused()


async def test_the_list_of_a_folded_node_follows_its_changes(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="noop", run_after=FAR)] * 13)
    tab = await open_tab(f"?pipeline={pipeline}")
    await tab.node("13 \u00d7 noop").click()
    await expect(tab.page.locator(".group")).to_contain_text("13 jobs of type noop")
    await site.fetch(LATER, pipeline)
    await expect(tab.page.locator(".group")).to_contain_text("14 jobs of type noop")
    # One of them gets a child, and leaves the folded node.
    child = (
        "insert into reactor.jobs (pipeline_id, job_type, parent_id, run_after) "
        "select $1::text::uuid, 'child', min(id), 'infinity' from reactor.jobs where pipeline_id = $1::text::uuid"
    )
    await site.fetch(child, pipeline)
    await expect(tab.page.get_by_role("link", name="Jobs 15")).to_be_visible()
    await expect(tab.page.locator(".group")).to_contain_text("13 jobs of type noop")


async def test_a_job_between_two_attempts_is_not_shown_as_running(open_tab: Any, site: Site) -> None:
    put_back = (
        "insert into reactor.jobs (job_type, attempts, error, run_after, created_at, started_at) "
        "values ('noop', 1, 'no', 'infinity', now() - interval '2 hours', now() - interval '2 hours') "
        "returning pipeline_id::text"
    )
    pipeline = await site.fetch(put_back)
    tab = await open_tab(f"?pipeline={pipeline}&tab=timeline")
    await expect(tab.page.locator(".timeline .virtual-rows .text")).to_contain_text("first attempt 2 h 0 min ago")
    await tab.page.get_by_role("link", name="Jobs 1").click()
    await expect(tab.page.locator(".jobs .virtual-rows .attempts")).to_have_text("1")
    await expect(tab.page.locator(".jobs .virtual-rows .duration")).to_have_text("")
    await tab.page.get_by_role("link", name="noop").first.click()
    facts = tab.page.locator(".panel .facts")
    await expect(facts).to_contain_text(re.compile("Run after.*9999"))
    await expect(facts).not_to_contain_text("Duration")


async def test_a_step_that_runs_again_shows_which_run_is_next_and_when(open_tab: Any, site: Site) -> None:
    """J4, J15: a step that waits for its next run, with the error of the last one; another is named and not planned."""
    payload = {"days": ["monday"], "models": ["a", "b"], "broken": ["monday/a"], "runs": 3}
    pipeline = await site.submit([NewJob(job_type="simulate.year", payload=payload, steps=["tuesday/a"])])
    job = await site.fetch("select id from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    tab = await open_tab(f"?pipeline={pipeline}&job={job}")
    panel = tab.page.locator(".panel")
    cell = panel.get_by_role("button", name="monday/a: pending, run 2 of 3 at")
    await expect(cell).to_be_visible()
    await expect(panel.locator(".steps > p").first).to_have_text("1 of 3 completed, 2 pending")
    await cell.click()
    await expect(panel.locator(".step-detail")).to_contain_text("monday/a pending, run 2 of 3 at")
    await expect(panel.locator(".step-detail .error")).to_contain_text("no boundary values for monday/a")
    await site.fetch("select count(*) from reactor.cancel(array[$1::bigint], 'the test is over')", job)


async def test_new_steps_and_errors_do_not_move_the_focus(open_tab: Any, site: Site) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    job = await site.fetch("select id from reactor.jobs where pipeline_id = $1::text::uuid", pipeline)
    step = "insert into reactor.steps (job_id, name, position, state, error) values ($1, $2, $3, 'failed', 'no ' || $2)"
    await site.fetch(step, job, "day/1", 1)
    tab = await open_tab(f"?pipeline={pipeline}&tab=errors&job={job}")
    cell = tab.page.get_by_role("button", name="day/1: failed")
    await cell.focus()
    await site.fetch(step, job, "day/2", 2)
    await expect(tab.page.get_by_role("button", name="day/2: failed")).to_be_visible()
    await expect(cell).to_be_focused()

    fail = (
        "insert into reactor.jobs (pipeline_id, job_type, state, error) "
        "values ($1::text::uuid, 'no.handler', 'failed', 'it broke') returning id"
    )
    first = await site.fetch(fail, pipeline)
    error = tab.page.get_by_label(f"Error of job {first}")
    await error.focus()
    second = await site.fetch(fail, pipeline)
    await expect(tab.page.get_by_label(f"Error of job {second}")).to_be_visible()
    await expect(error).to_be_focused()


NO_TIMERS = """
const later = window.setTimeout;
window.setTimeout = (call, wait, ...rest) => (wait >= 400 ? 0 : later(call, wait, ...rest));
"""


async def test_retry_now_connects_to_a_server_that_was_unreachable_at_first(open_tab: Any, site: Site) -> None:
    tab = await open_tab()
    # Without long timers the page does not retry on its own.
    await tab.page.context.add_init_script(NO_TIMERS)
    await tab.page.route("**/v1/me", lambda route: route.abort())
    await tab.open()
    await expect(tab.page.locator(".banner")).to_contain_text("The server does not answer.")
    await tab.page.unroute("**/v1/me")
    await tab.page.get_by_role("button", name="Retry now").click()
    await expect(tab.connection).to_have_text("Live")


async def test_a_missing_figure_stays_reported_until_it_is_available(open_tab: Any, site: Site) -> None:
    tab = await open_tab()
    answered: list[Any] = []
    problem = {"title": "Too slow", "detail": "Counting takes too long."}
    await tab.page.route("**/v1/stats/history?*", lambda route: route.fulfill(status=503, json=problem))
    tab.page.on("response", lambda response: answered.append(response) if "/v1/queues" in response.url else None)
    await tab.page.clock.install()
    await tab.open("?view=overview")
    note = tab.page.locator("main > .empty", has_text="Counting takes too long.")
    await expect(note).to_be_visible()
    before = len(answered)
    while len(answered) == before:
        await tab.page.clock.run_for(1000)
    await tab.page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 50))")
    await expect(note).to_be_visible()


async def test_a_server_that_starts_to_require_tokens_gets_one(open_tab: Any, guarded: Site) -> None:
    pipeline = await guarded.submit([NewJob(job_type="no.handler")])
    tab = await open_tab(base=guarded.address)
    before = {"name": "anonymous", "permissions": ["view"], "needs_token": False}
    await tab.page.route("**/v1/me", lambda route: route.fulfill(json=before))
    await tab.open(f"?pipeline={pipeline}")
    await tab.page.get_by_label("Token").fill("view-only")
    await tab.page.keyboard.press("Enter")
    await expect(tab.state).to_have_text("running")


async def test_escape_does_not_close_the_sign_in_dialog(open_tab: Any, guarded: Site) -> None:
    tab = await open_tab(base=guarded.address)
    token = tab.page.get_by_label("Token")
    await token.focus()
    for _ in range(3):
        await tab.page.keyboard.press("Escape")
    await token.fill("view-only")
    await tab.page.keyboard.press("Enter")
    await expect(tab.connection).to_have_text("Live")


async def test_the_progress_element_reconnects_without_new_events(
    open_tab: Any, databases: Databases, host: Host, tmp_path: Path
) -> None:
    async with site_on(databases, tmp_path, works=False, origins=host.origin) as lost:
        pipeline = await lost.submit([NewJob(job_type="no.handler")])
        host.pages["/quiet"] = f"""
            <script type="module" src="{lost.address}reactor-progress.js"></script>
            <reactor-progress pipeline="{pipeline}"></reactor-progress>"""
        tab = await open_tab("quiet", base=host.address)
        progress = tab.page.locator("reactor-progress")
        await expect(progress).to_have_attribute("data-state", "running")
        lost.stop("serve", signal.SIGKILL)
        with lost.port_kept():
            await expect(progress).to_have_attribute("data-away", "")
            await lost.serve()
        await expect(progress).not_to_have_attribute("data-away", "")
        await expect(progress).to_contain_text("0 % · 0 of 1 jobs")
        await expect(progress).not_to_contain_text("reconnecting")


async def test_the_progress_element_opens_no_stream_after_its_pipeline_is_set_to_null(
    open_tab: Any, site: Site, host: Host
) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    host.pages["/null"] = f"""
        <script type="module" src="{site.address}reactor-progress.js"></script>
        <reactor-progress pipeline="{pipeline}"></reactor-progress>"""
    tab = await open_tab("null", base=host.address)
    progress = tab.page.locator("reactor-progress")
    await expect(progress).to_have_attribute("data-state", "running")
    requested: list[str] = []
    tab.page.on("request", lambda request: requested.append(request.url))
    await progress.evaluate("(element) => { element.pipeline = null; element.token = null; }")
    await expect(progress).not_to_have_attribute("data-state", "running")
    await progress.evaluate(f"(element) => {{ element.pipeline = '{pipeline}'; }}")
    await expect(progress).to_have_attribute("data-state", "running")
    assert [url for url in requested if "null" in url] == []


async def test_an_unreachable_database_is_shown_as_stale(open_tab: Any, site: Site, host: Host) -> None:
    pipeline = await site.submit([NewJob(job_type="no.handler")])
    await site.fetch("update reactor.jobs set progress = 0.29 where pipeline_id = $1::text::uuid", pipeline)
    host.pages["/stale"] = f"""
        <script type="module" src="{site.address}reactor-progress.js"></script>
        <reactor-progress pipeline="{pipeline}"></reactor-progress>"""
    elsewhere = await open_tab("stale", base=host.address)
    progress = elsewhere.page.locator("reactor-progress")
    await expect(progress).to_have_attribute("data-state", "running")
    tab = await open_tab(f"?pipeline={pipeline}")
    await expect(tab.connection).to_have_text("Live")
    await expect(tab.page.locator(".overall .percent")).to_have_text("29 %")
    banner = tab.page.locator(".banner")
    async with connect(site.url, name="test") as connection, connection.transaction():
        await connection.execute("lock table reactor.jobs in access exclusive mode")
        await expect(tab.connection).to_have_text("Stale")
        await expect(banner).to_contain_text("the database does not answer. Data as of")
        await expect(progress).to_contain_text("29 % · 0 of 1 jobs (stale)")
        await expect(progress).to_have_attribute("data-away", "")
    await expect(tab.connection).to_have_text("Live")
    await expect(banner).to_be_hidden()
    await expect(progress).not_to_contain_text("stale")


async def test_the_progress_element_waits_between_attempts_even_with_new_tokens(
    open_tab: Any, site: Site, host: Host
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        host.pages["/tokens"] = f"""
            <script type="module" src="{site.address}reactor-progress.js"></script>
            <reactor-progress pipeline="{uuid4()}" token="0" src="http://127.0.0.1:{port}/"></reactor-progress>
            <script type="module">
              const progress = document.querySelector("reactor-progress");
              window.failures = [];
              progress.addEventListener("error", () => window.failures.push(performance.now()));
              progress.addEventListener("tokenneeded", () => {{ progress.token = String(window.failures.length); }});
            </script>"""
        tab = await open_tab("tokens", base=host.address)
        await until(lambda: tab.page.evaluate("window.failures.length >= 3"))
        first, second, third = (await tab.page.evaluate("window.failures"))[:3]
    # The first new token is tried at once: the old one may have expired.
    assert third - second > 900, [first, second, third]


async def test_the_page_works_when_mounted_under_a_prefix(open_tab: Any, databases: Databases, tmp_path: Path) -> None:
    program = tmp_path / "mounted.py"
    program.write_text(
        "import sys, uvicorn\n"
        "from starlette.applications import Starlette\n"
        "from starlette.routing import Mount\n"
        "from reactor_http.app import create_app\n"
        "app = Starlette(routes=[Mount('/deep/down', create_app(sys.argv[1]))])\n"
        "uvicorn.run(app, port=0, log_level='info')\n"
    )
    async with databases.clone() as url:
        served = Site(url, tmp_path)
        pipeline = await served.submit([NewJob(job_type="noop")])
        process = subprocess.Popen([sys.executable, program, url], stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            while not (
                found := re.search("running on (http://[^ ]+)", await asyncio.to_thread(process.stderr.readline))
            ):
                assert process.poll() is None
            tab = await open_tab("deep/down", base=f"{found[1]}/")
            await tab.page.locator(f"a[href*='{pipeline}']").click()
            await expect(tab.state).to_have_text("running")
            await tab.page.get_by_role("button", name="Cancel pipeline").click()
            await tab.page.get_by_role("dialog").get_by_role("button", name="Cancel pipeline").click()
            await expect(tab.state).to_have_text("cancelled")
        finally:
            process.kill()
            process.communicate()


async def laid_out(tab: Tab, jobs: list[dict[str, Any]], **options: int) -> dict[str, Any]:
    found: dict[str, Any] = await tab.page.evaluate(
        """async ([jobs, options]) => {
          const { layout } = await import(new URL("layout.js", location.href));
          const rows = jobs.map((job) => ({ job_type: "work", parent_id: null, depends_on: [], ...job }));
          const { nodes, edges } = layout(rows, options);
          return {
            nodes: nodes.map(({ jobs, layer, x, y }) => ({ jobs: jobs.length, layer, x, y })),
            edges: edges.map(({ from, to, chained }) => [from.jobs[0], to.jobs[0], chained]),
          };
        }""",
        [jobs, options],
    )
    return found


async def test_graphs_are_laid_out_in_layers_and_folded_when_large(open_tab: Any) -> None:
    tab = await open_tab()
    diamond: list[dict[str, Any]] = [
        {"id": 1},
        {"id": 2, "depends_on": [1]},
        {"id": 3, "depends_on": [1]},
        {"id": 4, "depends_on": [2, 3, 1]},
    ]
    found = await laid_out(tab, diamond)
    assert [node["layer"] for node in found["nodes"]] == [0, 1, 1, 2]
    assert len({(node["x"], node["y"]) for node in found["nodes"]}) == 4
    assert len(found["edges"]) == 5

    rows: list[dict[str, Any]] = [{"id": 1}, {"id": 2, "parent_id": 1}, {"id": 3, "parent_id": 99, "depends_on": [98]}]
    chained = await laid_out(tab, rows)
    assert chained["edges"] == [[1, 2, True]]
    assert [node["layer"] for node in chained["nodes"]] == [0, 1, 0]

    lanes: list[dict[str, Any]] = [{"id": lane, "job_type": "read"} for lane in range(1, 501)]
    lanes += [{"id": 1000 + lane, "job_type": "write", "depends_on": [lane]} for lane in range(1, 501)]
    assert [node["jobs"] for node in (await laid_out(tab, lanes))["nodes"]] == [500, 500]
    assert len((await laid_out(tab, lanes[:12]))["nodes"]) == 12

    odd_one: list[dict[str, Any]] = [*lanes, {"id": 5000, "job_type": "check", "depends_on": [7]}]
    assert sorted(node["jobs"] for node in (await laid_out(tab, odd_one))["nodes"]) == [1, 1, 1, 499, 499]

    chain = [{"id": number, "depends_on": [number - 1] if number > 1 else []} for number in range(1, 5001)]
    assert len((await laid_out(tab, chain))["nodes"]) <= 300
    assert (await laid_out(tab, []))["nodes"] == []
