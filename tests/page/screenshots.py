"""Takes the screenshots in docs/images from a real run: `make screenshots`. Needs Chromium."""

import asyncio
import random
import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import simulation_app.client
import simulation_app.system
from ingestion_app.scenario import Scenario
from ingestion_app.system import running
from playwright.async_api import Browser, async_playwright, expect

from reactor.client.submit import NewJob
from reactor.testing import Databases, server_for_tests
from tests.page.site import Edges, Site, site_on
from tests.support.browsers import FLAGS
from tests.support.until import until

IMAGES = Path(__file__).parents[2] / "docs" / "images"
REGIONS = ("alps", "baltic", "benelux", "iberia", "nordics")
DAYS = [f"2026-01-{day:02}" for day in range(1, 32)]
MODELS = ["aurora", "boreas", "cirrus", "dune"]
# Spreads jobs that ran within seconds over the past hour.
SPREAD_OVER_AN_HOUR = """
update reactor.jobs j
set created_at = created_at - moved, started_at = started_at - moved, finished_at = finished_at - moved
from (
    select pipeline_id, interval '1 minute' * (57.0 * (1 - row_number() over (order by min(id)) / 60.0) + 2) as moved
    from reactor.jobs group by pipeline_id having bool_and(job_type = 'check.station')
) m
where m.pipeline_id = j.pipeline_id
"""


def forecast(day: str, seconds: float, *, broken: str = "") -> tuple[list[NewJob], Edges]:
    regions = [
        NewJob(
            job_type="forecast.region",
            payload={"region": region, "seconds": seconds * (2 + place), "failures": 9 * (region == broken)},
            scope=f"{day}/{region}",
        )
        for place, region in enumerate(REGIONS)
    ]
    first = NewJob(job_type="fetch.weather", payload={"seconds": seconds}, scope=f"weather/{day}")
    last = NewJob(job_type="forecast.publish", payload={"seconds": seconds})
    edges = [(place, 0) for place in range(1, 6)] + [(6, place) for place in range(1, 6)]
    return [first, *regions, last], edges


async def fill(site: Site) -> dict[str, str]:
    """Pipelines in all states, by name."""
    for number in range(60):
        await site.submit([station() for _ in range(random.randint(5, 40 if number % 20 < 14 else 90))])
    await site.submit(*forecast("2026-01-14", 0.1))
    year: dict[str, Any] = {"days": DAYS, "models": MODELS, "seconds": 0.3}
    report = NewJob(job_type="forecast.publish", scope="report/2026")
    year["broken"] = ["2026-01-03/dune", "2026-01-07/cirrus"]
    found = {"failed": await site.submit(*forecast("2026-01-15", 0.2, broken="iberia"))}
    found["steps"] = await site.submit(
        [NewJob(job_type="simulate.year", payload=year, scope="module=3/year=2026"), report], [(1, 0)]
    )
    await site.submit([NewJob(job_type="partly", scope="import/2026-01-15")])
    await site.submit([NewJob(job_type="archive.tiles", scope="tiles/europe")])
    found["running"] = await site.submit(*forecast("2026-01-16", 6))
    return found


async def submit_many(site: Site) -> str:
    stations = [replace(station(), scope=f"station/{number:04}") for number in range(1, 4001)]
    places = range(1, len(stations) + 1)
    last = NewJob(job_type="forecast.publish", scope="report/stations")
    edges = [*((place, 0) for place in places), *((len(stations) + 1, place) for place in places)]
    return await site.submit([*forecast("2026-01-16", 0)[0][:1], *stations, last], edges)


def station() -> NewJob:
    return NewJob(job_type="check.station", payload={"failures": int(random.random() < 0.01)})


async def take_screenshot(browser: Browser, site: Site, name: str, query: str, **options: Any) -> None:
    click = options.pop("click", None)
    after = options.pop("after", None)
    pause = options.pop("pause", 1200)
    viewport = options.pop("viewport", {"width": 1280, "height": 760})
    context = await browser.new_context(viewport=viewport, locale="en-GB", **options)
    page = await context.new_page()
    await page.goto(site.address + query)
    await expect(page.locator(".connection")).to_have_text("Live")
    if click:
        await page.locator(".node", has_text=click).first.click()
    if after:
        await expect(page.locator(after).first).to_be_visible()
    await page.wait_for_timeout(pause)
    await page.screenshot(path=IMAGES / f"{name}.png")
    await context.close()


async def take_all(browser: Browser, site: Site) -> None:
    found = await fill(site)
    phone = {"viewport": {"width": 390, "height": 760}, "device_scale_factor": 1.5}
    checked = "select bool_and(finished_at is not null) from reactor.jobs where job_type = 'check.station'"
    await until(lambda: site.fetch(checked), within_seconds=600)
    await site.fetch(SPREAD_OVER_AN_HOUR)
    running = f"?pipeline={found['running']}"
    ready = "select count(*) >= 2 from reactor.jobs where pipeline_id = $1::text::uuid and state = 'completed'"
    await until(lambda: site.fetch(ready, found["running"]), within_seconds=600)
    await take_screenshot(browser, site, "pipeline", running, click="baltic")
    await take_screenshot(browser, site, "pipeline-dark", running, color_scheme="dark")
    await take_screenshot(browser, site, "pipeline-phone", f"{running}&tab=timeline", **phone)
    overview = {"viewport": {"width": 1280, "height": 1000}, "after": ".tile", "pause": 11000}
    await take_screenshot(browser, site, "overview", "?view=overview", **overview)
    await take_screenshot(browser, site, "pipelines", "")
    await take_screenshot(browser, site, "pipelines-phone", "", color_scheme="dark", **phone)
    await take_screenshot(browser, site, "steps", f"?pipeline={found['steps']}", click="simulate.year")
    await take_screenshot(browser, site, "timeline", f"{running}&tab=timeline")
    await take_screenshot(browser, site, "errors", f"?pipeline={found['failed']}&tab=errors", color_scheme="dark")
    many = await submit_many(site)
    await take_screenshot(browser, site, "folded", f"?pipeline={many}", color_scheme="dark", pause=3000)


async def take_ingestion(browser: Browser, databases: Databases, folder: Path) -> None:
    """Of examples/ingestion: an import that is under way, and factors whose calculations are paused."""
    async with databases.clone() as url:
        with running(url, folder) as system:
            scenario = Scenario(system, datetime.now(UTC).year)
            scenario.synchronise_units()
            scenario.fill_another_module()
            scenario.upload_factors()
            scenario.click_twice()
            scenario.upload_mistakes()
            scenario.anna.post("/reactor/v1/queues/recalc/pause")
            scenario.upload_factors_of("travel", "factors_travel_revised.csv")
            scenario.hold_imports(page=7)
            context = await browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB")
            page = await context.new_page()
            await page.goto(system.address)
            await page.fill("#token", system.tokens["anna"])
            await page.press("#token", "Enter")
            await expect(page.locator("#stale")).to_contain_text("long haul")
            await page.click("#import")
            await page.wait_for_timeout(2000)
            await page.screenshot(path=IMAGES / "example-ingestion.png")
            await context.close()
            scenario.hold_imports(page=None)


async def take_simulation(browser: Browser, databases: Databases, folder: Path) -> None:
    """Of examples/simulation: a simulation that is under way, with a model that has failed."""
    async with databases.clone() as url:
        with simulation_app.system.running(url, folder) as system:
            client = simulation_app.client.Client(system.client())
            client.http.put("/market/outages/2026-01-08/momentum-15", params={"requests": 3}).raise_for_status()
            system.start_pods("pod-1")
            context = await browser.new_context(viewport={"width": 1280, "height": 860}, locale="en-GB")
            page = await context.new_page()
            await page.goto(system.address)
            await page.fill("#token", system.tokens["anna"])
            await page.press("#token", "Enter")
            await page.click("text=momentum-15")
            await page.click("text=reversal-5")
            await page.fill("[name=last]", "2026-01-07")
            await page.click("#trigger button")
            await expect(page.locator("#title")).to_contain_text("completed", timeout=30_000)
            await page.check("text=momentum-15")
            await page.check("text=reversal-5")
            await page.fill("[name=last]", "2026-01-16")
            await page.click("#trigger button")
            await expect(page.locator("#grid")).to_contain_text("skipped", timeout=30_000)
            await page.click("#grid tr:nth-child(3) td:nth-child(5) button")
            await expect(page.locator("#lines")).to_contain_text("buys")
            await page.wait_for_timeout(1500)
            await page.screenshot(path=IMAGES / "example-simulation.png")
            await context.close()


async def main() -> None:
    random.seed(7)
    IMAGES.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp())
    with server_for_tests() as server:
        databases = Databases(server)
        await databases.prepare()
        async with async_playwright() as playwright, site_on(databases, folder, works=True) as site:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            await take_all(browser, site)
            await take_ingestion(browser, databases, folder)
            await take_simulation(browser, databases, folder)
            await browser.close()
        await databases.remove()
    shutil.rmtree(folder)
    for image in sorted(IMAGES.glob("*.png")):
        print(f"{image.name:24} {image.stat().st_size // 1024:4} kB")


if __name__ == "__main__":
    asyncio.run(main())
