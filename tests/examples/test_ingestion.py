"""The example `examples/ingestion`: what its scenario leaves in the database, and what a scenario can't see.

Docstrings name the rows of docs/coverage.md that a test proves.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ingestion_app.client import Client, accepted
from ingestion_app.combination import Combination
from ingestion_app.results import JOB_TYPES
from ingestion_app.scenario import Scenario
from ingestion_app.system import FOLDER, System, running
from playwright.async_api import expect

from reactor.database.connection import Connection, connect
from reactor.testing import Databases
from tests.support.browsers import chromium
from tests.support.examples import command, database_of, execute
from tests.support.until import until

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("ingestion")]

YEAR = 2026
WAITS_FOR_THE_REPORT = """
    select exists (select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query ~ 'ingestion.reports')
"""
ADOPTED = "insert into reactor.jobs (job_type, payload) values (null, '{}') returning id"


@pytest.fixture(scope="module")
def url(databases: Databases) -> Iterator[str]:
    with database_of(databases) as url:
        yield url


@pytest.fixture(scope="module")
def ingestion(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(url, tmp_path_factory.mktemp("ingestion")) as system:
        yield system


@pytest.fixture(scope="module")
def adopted(ingestion: System, url: str) -> int:
    """A row without a type, which is there before the scenario runs."""
    return int(asyncio.run(execute(url, ADOPTED)))


@pytest.fixture(scope="module")
def scenario(ingestion: System, adopted: int) -> Scenario:
    scenario = Scenario(ingestion, YEAR)
    scenario.run()
    return scenario


@pytest.fixture
async def connection(url: str, scenario: Scenario) -> AsyncIterator[Connection]:
    """To what the scenario has left."""
    async with connect(url, name="test") as connection:
        yield connection


@pytest.fixture
async def spare(databases: Databases) -> AsyncIterator[str]:
    async with databases.clone() as url:
        yield url


async def test_every_type_of_the_ingestion_pipeline_has_a_handler_and_completes(
    ingestion: System, connection: Connection
) -> None:
    """D10: csv_ingest, api_ingest, factor_ingest, emission_recalc, module_emission_recalc, unit_sync and
    aggregation."""
    completed = await connection.fetch("select distinct job_type from reactor.jobs where state = 'completed'")
    assert {row["job_type"] for row in completed} == set(JOB_TYPES)
    workers = Client(ingestion.client()).get("/reactor/v1/workers")["workers"]
    assert all(set(JOB_TYPES) <= set(worker["job_types"]) for worker in workers)


async def test_the_totals_of_all_reports_follow_from_entries_and_factors(
    connection: Connection, scenario: Scenario
) -> None:
    """D10: after two clicks, two uploads at once and a killed pod."""
    reports = await connection.fetch(
        """
        select r.module, r.total_kg, (
            select sum(e.quantity * f.kg_per_unit) from ingestion.data_entries e
            join ingestion.factors f using (data_entry_type, year, activity)
            join ingestion.data_entry_types t on t.name = e.data_entry_type
            where t.module = r.module and e.year = r.year) as recomputed
        from ingestion.reports r where r.year = $1 order by 1
        """,
        YEAR,
    )
    assert [row["module"] for row in reports] == ["energy", "travel"]
    assert all(row["total_kg"] == row["recomputed"] > 0 for row in reports)
    assert scenario.checks > 0


async def test_one_run_of_a_combination_is_current_and_no_two_run_at_the_same_time(connection: Connection) -> None:
    """P1, P2, P9: the current run is the one that was claimed last."""
    current = await connection.fetch(
        """
        select scope, count(*) filter (where is_current) as current,
            max(locked_at) = max(locked_at) filter (where is_current) as is_last
        from reactor.jobs where scope is not null group by 1
        """
    )
    assert len(current) > 8
    assert all((row["current"], row["is_last"]) == (1, True) for row in current)
    overlapping = await connection.fetchval(
        """
        select count(*) from reactor.jobs a join reactor.jobs b on b.scope = a.scope and b.id > a.id
        where tstzrange(a.locked_at, a.finished_at) && tstzrange(b.locked_at, b.finished_at)
        """
    )
    assert overlapping == 0


async def test_the_import_of_the_killed_pod_was_run_again_by_another_one(
    ingestion: System, connection: Connection
) -> None:
    """P4, P8, D7: each attempt names its pod, and has a time of its own; the job started once."""
    [job] = await connection.fetch("select * from reactor.jobs where job_type = 'api_ingest'")
    [earlier] = await connection.fetch("select * from reactor.attempts where job_id = $1", job["id"])
    assert (earlier["outcome"], job["attempts"], job["state"]) == ("lease_lost", 2, "completed")
    assert {earlier["pod"], job["locked_by"]} == {"pod-1", "pod-2"}
    assert job["started_at"] < earlier["ended_at"] < job["locked_at"]
    pages = await connection.fetch("select state, attempts from reactor.steps where job_id = $1", job["id"])
    assert {(page["state"], page["attempts"]) for page in pages} == {("completed", 1)}


async def test_children_have_the_module_and_year_of_their_parent_and_not_its_type(connection: Connection) -> None:
    """D8, D9, D17: one recalculation per stale type, all in the pipeline of the parent, which counts them, and names
    the types beside its result."""
    children = await connection.fetch(
        """
        select c.job_type, c.payload::text::jsonb ->> 'data_entry_type' as type, c.scope,
            c.pipeline_id = p.pipeline_id and c.tags = p.tags and c.payload @> jsonb_build_object(
                'module', p.payload -> 'module', 'year', p.payload -> 'year') as is_alike
        from reactor.jobs c join reactor.jobs p on p.id = c.parent_id
        """
    )
    assert {child["job_type"] for child in children} == {"emission_recalc", "aggregation"}
    assert all(child["is_alike"] for child in children)
    for child in children:
        names_a_type = child["job_type"] == "emission_recalc"
        assert (child["type"] is not None) is ("data_entry_type=" in child["scope"]) is names_a_type
    miscounted = await connection.fetchval(
        """
        select count(*) from reactor.jobs p
        where p.children <> (select count(*) from reactor.jobs c where c.parent_id = p.id)
        """
    )
    assert miscounted == 0
    factors = await connection.fetch(
        """
        select children, meta from reactor.jobs
        where job_type = 'factor_ingest' and payload @> '{"module": "travel", "year": 2026}' order by id
        """
    )
    assert [row["children"] for row in factors] == [4, 0, 3]
    assert json.loads(factors[2]["meta"]) == {"file": "factors_travel_revised.csv", "stale_types": ["car", "plane"]}


async def test_a_run_ends_as_success_warning_or_error_with_the_message_of_its_handler(connection: Connection) -> None:
    """D6: what was rejected is kept, also where no row was valid."""
    runs = await connection.fetch(
        """
        select j.meta ->> 'file' as file, j.state, j.status_message, j.error, j.finished_at is not null as is_stamped,
            (select count(*) from ingestion.rejected_rows r where r.job_id = j.id) as rejected,
            (select count(*) from ingestion.data_entries e where e.job_id = j.id) as entries
        from reactor.jobs j
        where j.job_type = 'csv_ingest' and j.payload @> '{"year": 2026}' and j.meta ->> 'file' !~ 'plane'
        """
    )
    assert all(run["is_stamped"] for run in runs)
    found = {run["file"]: (run["state"], run["status_message"], run["rejected"], run["entries"]) for run in runs}
    assert found == {
        "electricity.csv": ("completed", "30 rows ingested", 0, 30),
        "car_with_mistakes.csv": ("partial", "3 rows were rejected, 17 ingested", 3, 17),
        "car_unreadable.csv": ("failed", "none of the 3 rows is valid", 3, 0),
    }


async def test_a_row_without_a_type_is_left_alone_by_the_example(connection: Connection, adopted: int) -> None:
    """D14: the pods ran dozens of jobs beside it."""
    row = await connection.fetchrow("select state, attempts, locked_by from reactor.jobs where id = $1", adopted)
    assert row is not None
    assert tuple(row) == ("pending", 0, None)


async def test_a_pipeline_of_the_example_lists_its_jobs_in_the_order_of_their_ids(
    ingestion: System, connection: Connection
) -> None:
    """D11"""
    largest = await connection.fetchrow(
        "select pipeline_id, array_agg(id order by id) ids from reactor.jobs group by 1 order by count(*) desc limit 1"
    )
    assert largest is not None
    client = Client(ingestion.client("vera"))
    for _ in range(2):
        found = client.get(f"/reactor/v1/pipelines/{largest['pipeline_id']}")
        assert [job["id"] for job in found["jobs"]] == largest["ids"]


async def test_statistics_of_a_week_count_the_runs_of_the_example(ingestion: System, connection: Connection) -> None:
    """D12: by type and state, with durations, and the import that ran again."""
    jobs = "select state, count(*) from reactor.jobs where job_type = $1 group by 1"
    found = Client(ingestion.client("vera")).get("/reactor/v1/stats", days=7)["types"]
    for job_type in ("api_ingest", "module_emission_recalc", "unit_sync"):
        expected = {row["state"]: row["count"] for row in await connection.fetch(jobs, job_type)}
        assert {row["state"]: row["count"] for row in found if row["job_type"] == job_type} == expected
    [imports] = [row for row in found if row["job_type"] == "api_ingest"]
    assert imports["retried"] == 1
    # From its first start: the lease of the killed pod is a part of it.
    assert imports["average_seconds"] > 2


async def test_of_two_rows_about_one_factor_the_last_counts(ingestion: System) -> None:
    content = b"data_entry_type,activity,kg_per_unit\ncar,petrol,1\ncar,petrol,2\n"
    client = Client(ingestion.client())
    query: dict[str, Any] = {"module": "travel", "year": 2041}
    response = client.http.post("/api/factors", params=query, files={"file": ("twice.csv", content)})
    job = client.finished(accepted(response))
    assert (job["state"], job["attempts"], job["children"]) == ("completed", 1, 2)


async def test_stale_factors_are_listed_by_type_and_id(ingestion: System, url: str) -> None:
    """D16: in this order, whatever the order of the rows in the table, and for callers that may view only."""
    year = 2031
    async with connect(url, name="test") as connection:
        await connection.execute(
            """
            insert into ingestion.factors (data_entry_type, year, activity, kg_per_unit, is_stale)
            select type, year, 'activity ' || -n, 1, stale
            from unnest(array['train', 'car', 'heating', 'plane']) type, generate_series(1, 5) n,
                (values (2031, true), (2031, false), (2032, true)) kind (year, stale)
            on conflict do nothing
            """
        )
        # Moves rows to the end of the table.
        await connection.execute("update ingestion.factors set kg_per_unit = 2 where year = $1 and id % 3 = 0", year)
        listed = await connection.fetch(
            "select data_entry_type, id from ingestion.factors where year = $1 and is_stale", year
        )
    expected = sorted((row["data_entry_type"], row["id"]) for row in listed)
    vera = Client(ingestion.client("vera"))
    for _ in range(2):
        found = vera.get("/api/factors/stale", year=year)
        assert [(factor["data_entry_type"], factor["id"]) for factor in found] == expected
    assert len(expected) == 20
    for name, status in ((None, 401), ("uma", 403)):
        assert ingestion.client(name).get("/api/factors/stale", params={"year": year}).status_code == status


async def test_every_endpoint_of_the_example_checks_its_permission(ingestion: System) -> None:
    """D13: the tokens are those of reactor's own API."""
    paths = Client(ingestion.client()).get("/openapi.json")["paths"]
    endpoints = [(method, path) for path, methods in paths.items() for method in methods if path.startswith("/api/")]
    assert len(endpoints) == 9
    for method, path in endpoints:
        for name, status in ((None, 401), ("vera" if method == "post" else "uma", 403)):
            response = ingestion.client(name).request(method, path.format(job_id=1))
            assert response.status_code == status, (method, path, response.text)


@pytest.mark.parametrize(
    ("path", "query", "file", "status"),
    [
        ("entries", {"module": "travel", "data_entry_type": "boat", "year": 2026}, b"x", 422),
        ("entries", {"module": "energy", "data_entry_type": "car", "year": 2026}, b"x", 422),
        ("entries", {"module": "travel", "data_entry_type": "car", "year": 20260}, b"x", 422),
        ("factors", {"module": "no\0ne", "year": 2026}, b"x", 422),
        ("factors", {"module": "travel", "year": 2026}, b"x" * 10_000_001, 413),
    ],
    ids=["unknown type", "type of another module", "year", "NUL", "size"],
)
async def test_the_example_refuses_bad_requests(
    ingestion: System, path: str, query: dict[str, Any], file: bytes, status: int
) -> None:
    response = ingestion.client().post(f"/api/{path}", params=query, files={"file": ("a.csv", file)})
    assert response.status_code == status, response.text
    assert response.json()["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b'unit,activity,quantity\n"open',
        b"a,b\n1,2\n",
        b"unit,activity,quantity\nLIB,\0,1\n",
    ],
    ids=["empty", "not UTF-8", "open quote", "other columns", "NUL"],
)
async def test_an_unreadable_file_fails_its_run_with_a_reason(ingestion: System, content: bytes) -> None:
    """D6"""
    query: dict[str, Any] = {"module": "travel", "data_entry_type": "car", "year": 2040}
    client = Client(ingestion.client())
    response = client.http.post("/api/entries", params=query, files={"file": ("\u202ea\x00.csv", content)})
    job = client.finished(accepted(response), "failed")
    assert job["error"]
    assert job["attempts"] == 1


async def test_a_combination_has_a_scope_of_its_own() -> None:
    """P1: NULL parts are equal to each other, and to nothing else."""
    parts = ["a", "", "a/module=b", "year=1", "%2F", "a=b", "ä\n", None]
    combinations = [
        Combination(target or "t", module, kind, method, year)
        for target, module, kind, method, year in product(parts, parts, parts, parts[-3:], [None, 1, 20])
    ]
    assert len({one.scope for one in combinations}) == len(set(combinations))
    assert all(Combination.of(one.scope) == one for one in combinations)
    assert Combination("report", "travel", None, None, 2026).scope == Combination("report", "travel", year=2026).scope


async def test_revisions_of_the_example_match_its_models_and_ignore_the_schema_of_reactor(
    ingestion: System, url: str
) -> None:
    """P10, D15: autogenerate finds nothing to change, although the database has the tables of both."""
    done = await asyncio.to_thread(command, FOLDER, url, "alembic", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No new upgrade operations" in done.stdout


async def test_revisions_of_the_example_can_be_taken_back(spare: str) -> None:
    for arguments in (("upgrade", "head"), ("downgrade", "base"), ("upgrade", "head")):
        done = await asyncio.to_thread(command, FOLDER, spare, "alembic", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


async def test_a_pod_that_dies_inside_its_transaction_leaves_nothing_and_its_run_is_recovered(
    spare: str, tmp_path: Path
) -> None:
    """P7, D6: recover is refused while the worker may be alive, and grants a fresh quota of attempts. There is no other
    pod that takes the job."""
    with ExitStack() as exits:
        system = System(spare, tmp_path, exits)
        await asyncio.to_thread(system.migrate)
        await asyncio.to_thread(system.start_front_end)
        await asyncio.to_thread(system.start_pods, "pod-1")
        client = Client(system.client())
        about = {"module": "travel", "data_entry_type": "plane", "year": YEAR}
        client.finished(client.post("/api/units/sync"))
        client.finished(accepted(client.upload("/api/factors", "factors_travel.csv", about)))
        async with connect(spare, name="test") as connection, connection.transaction():
            # The handler waits for this lock after it has written its entries.
            await connection.execute("select from ingestion.reports for update")
            submitted = accepted(client.upload("/api/entries", "plane.csv", about))
            await until(lambda: execute(spare, WAITS_FOR_THE_REPORT))
            system.kill("pod-1")
            recover = f"/reactor/v1/jobs/{submitted['job_id']}/recover"
            assert client.http.post(recover).status_code == 409
            assert system.client("vera").post(recover).status_code == 403
            await until(lambda: client.http.post(recover).status_code == 200)
            job = client.job(submitted["job_id"])
            assert (job["state"], job["attempts"]) == ("pending", 0)
            assert await connection.fetchval("select count(*) from ingestion.data_entries") == 0
        await asyncio.to_thread(system.start_pods, "pod-2")
        job = await asyncio.to_thread(client.finished, submitted)
        assert (job["locked_by"], job["attempts"], job["result"]) == ("pod-2", 1, {"rows": 60, "rejected": 0})
        assert await execute(spare, "select count(*) from ingestion.data_entries") == 60
        [report] = client.get("/api/reports", year=YEAR)
        assert report["total_kg"] == report["recomputed_kg"] is not None


async def test_the_page_of_the_example_shows_the_progress_of_an_upload_and_the_report(ingestion: System) -> None:
    """The streams of reactor are mounted in the application, and its tokens open them."""
    year = 2050
    anna = Client(ingestion.client())
    await asyncio.to_thread(anna.finished, anna.post("/api/units/sync"))
    factors = accepted(anna.upload("/api/factors", "factors_travel.csv", {"module": "travel", "year": year}))
    await asyncio.to_thread(anna.finished, factors)
    async with chromium() as browser:
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.goto(f"{ingestion.address}/")
        await page.fill("#year", str(year))
        await page.fill("#token", ingestion.tokens["anna"])
        await page.press("#token", "Enter")
        await page.select_option("[name=kind]", "travel/plane")
        await page.set_input_files("[name=file]", FOLDER / "data" / "plane.csv")
        await page.dblclick("#upload button")
        run = page.locator("reactor-progress").first
        await expect(run).to_contain_text("csv_ingest", timeout=20_000)
        await expect(run).to_have_attribute("data-state", "completed", timeout=20_000)
        await expect(page.locator("reactor-progress")).to_have_count(2)
        await expect(page.locator("#current")).to_contain_text("60 rows ingested", timeout=20_000)
        [report] = anna.get("/api/reports", year=year)
        await expect(page.locator("#reports")).to_contain_text(f"{float(report['total_kg']):.3f}", timeout=20_000)
        assert errors == []
