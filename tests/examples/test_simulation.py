"""The example `examples/simulation`: what its scenario leaves in the database, and what a scenario can't see.

Docstrings name the rows of docs/coverage.md that a test proves.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from simulation_app.client import Client
from simulation_app.database import open_engine
from simulation_app.results import Portfolio, find_results, store
from simulation_app.runtime import Holding, Outcome, TraderFailed, isolated
from simulation_app.scenario import MODELS, Scenario
from simulation_app.simulation import ModelDay, Simulation
from simulation_app.system import FOLDER, System, running
from sqlalchemy import event
from sqlalchemy.ext.asyncio import async_sessionmaker

from reactor.database.connection import Connection, connect
from reactor.testing import Databases
from tests.support.browsers import chromium
from tests.support.examples import command, database_of, execute
from tests.support.until import until

pytestmark = [pytest.mark.pods, pytest.mark.xdist_group("example-simulation")]
"""The dates of the scenario are in 2026, those of other tests in 2027."""

MONDAY = date(2026, 1, 5)
UNDISTURBED = "select min(id) from reactor.jobs where queue = 'batch'"
JOB = "insert into reactor.jobs (job_type, payload) values (null, '{}') returning id"


@pytest.fixture(scope="module")
def url(databases: Databases) -> Iterator[str]:
    with database_of(databases) as url:
        yield url


@pytest.fixture(scope="module")
def system(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(url, tmp_path_factory.mktemp("simulation")) as system:
        yield system


@pytest.fixture(scope="module")
def scenario(system: System) -> Scenario:
    scenario = Scenario(system, MONDAY)
    scenario.run()
    return scenario


@pytest.fixture
def client(system: System, scenario: Scenario) -> Client:
    return Client(system.client())


@pytest.fixture
async def connection(url: str, scenario: Scenario) -> AsyncIterator[Connection]:
    """To what the scenario has left."""
    async with connect(url, name="test") as connection:
        yield connection


@pytest.fixture
async def spare(databases: Databases) -> AsyncIterator[str]:
    async with databases.clone() as url:
        yield url


@asynccontextmanager
async def without_pods(url: str, folder: Path, think_seconds: float = 0) -> AsyncIterator[System]:
    with ExitStack() as exits:
        system = System(url, folder, exits, think_seconds)
        await asyncio.to_thread(system.migrate)
        await asyncio.to_thread(system.start_front_end)
        yield system


async def test_every_run_of_a_range_has_the_same_positions_trades_and_returns(
    connection: Connection, scenario: Scenario
) -> None:
    """J1, J13: in batch mode, in server mode with a killed pod, and after a retry."""
    assert scenario.compared == 18
    runs = await connection.fetch(
        """
        select r.job_id, r.date, r.model, r.value, r.day_return, r.turnover, array_agg((p.symbol, p.quantity, p.price)
            order by p.symbol)::text as positions
        from simulation.model_days r join simulation.positions p using (job_id, date, model)
        where r.date < '2027-01-01' group by 1, 2, 3
        """
    )
    found: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    for run in runs:
        found.setdefault((run["date"], run["model"]), set()).add(tuple(run)[3:])
    starts = {run["date"] for run in runs}
    # A model that starts on another date holds something else.
    assert len(starts) == 8
    assert all(len(values) == 1 for values in found.values())


async def test_each_model_day_has_one_step_and_one_result(connection: Connection) -> None:
    """J2: although a pod died, and a job was retried."""
    counts = await connection.fetch(
        """
        select j.state,
            (select count(*) from reactor.steps s where s.job_id = j.id and s.state = 'completed') as steps,
            (select count(*) from simulation.model_days r where r.job_id = j.id) as results,
            (j.step_counts ->> 'completed')::int as counted
        from reactor.jobs j where j.job_type = 'simulation'
        """
    )
    assert {row["state"] for row in counts} == {"completed", "failed"}
    assert all(row["steps"] == row["results"] == row["counted"] for row in counts)
    wrong = await connection.fetchval(
        """
        select count(*) from simulation.model_days r where value <> cash + (
            select coalesce(sum(p.quantity * p.price), 0) from simulation.positions p
            where (p.job_id, p.date, p.model) = (r.job_id, r.date, r.model))
        """
    )
    assert wrong == 0


async def test_model_days_that_completed_before_the_pod_was_killed_ran_once(connection: Connection) -> None:
    """J8: the next attempt continues with the others."""
    job = await connection.fetchrow(
        """
        select j.id, j.state, j.attempts, j.locked_at, j.locked_by, a.pod
        from reactor.jobs j join reactor.attempts a on a.job_id = j.id and a.outcome = 'lease_lost'
        """
    )
    assert job is not None
    assert (job["state"], job["attempts"]) == ("completed", 2)
    assert job["pod"] != job["locked_by"]
    steps = await connection.fetch(
        "select name, started_at, finished_at from reactor.steps where job_id = $1", job["id"]
    )
    earlier = {step["name"] for step in steps if step["started_at"] < job["locked_at"]}
    assert all(step["finished_at"] < job["locked_at"] for step in steps if step["name"] in earlier)
    assert 6 <= len(earlier) < len(steps) == 15
    logged = await connection.fetch(
        "select distinct step from reactor.logs where job_id = $1 and attempt = 2", job["id"]
    )
    assert {row["step"] for row in logged} == {step["name"] for step in steps} - earlier


async def test_dates_run_one_after_the_other_and_models_of_a_date_together(connection: Connection) -> None:
    """J5"""
    dates = await connection.fetch(
        """
        select s.job_id, min(s.started_at) as started, max(s.finished_at) as ended,
            max(s.started_at) < min(s.finished_at) as together
        from reactor.steps s
        where not exists (select from reactor.attempts a where a.job_id = s.job_id and a.outcome = 'retried')
        group by s.job_id, split_part(s.name, '/', 1) having count(*) = 3
        order by s.job_id, split_part(s.name, '/', 1)
        """
    )
    assert len(dates) == 10
    following = [(one, two) for one, two in pairwise(dates) if one["job_id"] == two["job_id"]]
    assert all(one["ended"] <= two["started"] for one, two in following)
    assert sum(row["together"] for row in dates) > len(dates) / 2


async def test_a_retry_runs_the_model_days_that_had_not_completed(connection: Connection) -> None:
    """J3, J15: the failed one, and the one that needed its positions."""
    retried = await connection.fetchrow(
        """
        select a.job_id, a.attempt_id from reactor.attempts a join reactor.jobs j on j.id = a.job_id
        where a.outcome = 'retried' and j.payload ->> 'first' = '2026-01-12'
        """
    )
    assert retried is not None
    again = await connection.fetch(
        "select distinct step from reactor.logs where job_id = $1 and attempt_id <> $2 order by 1",
        retried["job_id"],
        retried["attempt_id"],
    )
    assert [row["step"] for row in again] == ["2026-01-13/momentum-5", "2026-01-14/momentum-5"]


async def test_what_each_model_day_did_can_be_read(client: Client, connection: Connection) -> None:
    """J17: the holdings, the decision and the trades."""
    job_id = await connection.fetchval(UNDISTURBED)
    results = client.get("/api/results", job_id=job_id)
    assert len(results) == 15
    for result in results:
        lines = client.get(f"/api/simulations/{job_id}/logs/{result['date']}/{result['model']}")
        holds, decides, *trades = [line["message"] for line in lines]
        assert holds.startswith("holds")
        assert " over " in decides
        assert [trade.split()[0] for trade in trades] == [
            "buys" if trade["quantity"] > 0 else "sells" for trade in result["trades"]
        ]


async def test_simulations_are_found_by_id_and_state_with_the_most_recent_first(
    client: Client, connection: Connection
) -> None:
    """J10, J14, J18: with counts and durations, page by page."""
    ids = [
        row["id"]
        for row in await connection.fetch("select id from reactor.jobs where payload ? 'models' order by 1 desc")
    ]
    listed: list[Any] = []
    query: dict[str, Any] = {"limit": 2}
    while query.get("before", 1):
        page = client.get("/api/simulations", **query)
        listed += page["simulations"]
        query["before"] = page["before"]
    assert [simulation["job_id"] for simulation in listed] == ids
    for simulation in listed:
        assert 0 < simulation["durations"]["ran"] <= simulation["durations"]["total"]
        assert {**client.status(simulation["job_id"]), "model_days": None} == {**simulation, "model_days": None}
    failed = client.get("/api/simulations", state="failed")["simulations"]
    assert [simulation["job_id"] for simulation in failed] == [
        simulation["job_id"] for simulation in listed if simulation["state"] == "failed"
    ]
    assert client.get("/api/simulations", state="running") == {"simulations": [], "before": None}
    other = await connection.fetchval(JOB)
    assert client.http.get(f"/api/simulations/{other}").status_code == 404


async def test_results_of_many_model_days_take_as_many_queries_as_one(
    scenario: Scenario, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J10"""
    monkeypatch.setenv("REACTOR_DATABASE_URL", url)
    engine = open_engine()
    sent: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *about: sent.append(about[2]))
    counts = []
    async with async_sessionmaker(engine)() as session:
        for limit in (1, 50):
            sent.clear()
            found = await find_results(session, None, None, None, limit, 0)
            counts.append((len(found), len(sent)))
            session.expunge_all()
    await engine.dispose()
    assert counts[0] == (1, 3)
    assert counts[1][0] > 30
    assert counts[1][1] == 3


@pytest.mark.parametrize(
    "plan",
    [
        {"first": "2026-01-05", "last": "2026-01-09", "models": ["crystal ball"]},
        {"first": "2026-01-05", "last": "2026-01-09", "models": []},
        {"first": "2026-01-09", "last": "2026-01-05", "models": MODELS},
        {"first": "2026-01-10", "last": "2026-01-11", "models": MODELS},
        {"first": "2020-02-03", "last": "2039-12-30", "models": MODELS},
        {"first": "1000-01-01", "last": "9999-12-31", "models": MODELS},
        {"first": "yesterday", "last": "2026-01-05", "models": MODELS},
        {"first": "2026-01-05", "last": "2026-01-09", "models": MODELS, "priority": 1},
        {"first": "2026-01-05", "last": "2026-01-09", "models": ["a\0b"]},
    ],
    ids=["unknown model", "no model", "reversed", "weekend", "too many", "far", "no date", "unknown field", "NUL"],
)
async def test_a_plan_that_can_not_run_is_refused_with_the_reason(
    client: Client, connection: Connection, plan: dict[str, Any]
) -> None:
    """J11: and nothing is created."""
    before = await connection.fetchval("select count(*) from reactor.jobs")
    response = client.http.post("/api/simulations", json=plan)
    assert response.status_code == 422, response.text
    assert response.json()["detail"][0]["msg"]
    assert await connection.fetchval("select count(*) from reactor.jobs") == before


@pytest.mark.parametrize(
    "path",
    [
        "/api/results?model=a%00b",
        "/api/results?date=0001-01-01",
        "/api/results?job_id=9223372036854775808",
        "/api/results?limit=2001",
        "/api/simulations?limit=1001",
        "/api/simulations?state=done",
        "/api/simulations/0",
        "/api/simulations/1/logs/0001-01-01/balanced",
        "/api/simulations/1/logs/2026-01-05/crystal%00ball",
        "/market/prices?date=0001-01-01&model=balanced",
    ],
)
async def test_the_example_refuses_bad_queries(client: Client, path: str) -> None:
    response = client.http.get(path)
    assert response.status_code == 422, response.text
    assert response.json()["detail"]


async def test_every_endpoint_of_the_simulation_checks_its_permission(system: System, client: Client) -> None:
    paths = client.get("/openapi.json")["paths"]
    endpoints = [(method, path) for path, methods in paths.items() for method in methods if path.startswith("/api/")]
    assert len(endpoints) == 6
    for method, path in endpoints:
        address = path.format(job_id=1, day=MONDAY, model="balanced")
        assert system.client(None).request(method, address).status_code == 401, path
    assert system.client("vera").post("/api/simulations", json={}).status_code == 403
    assert system.client("vera").put(f"/market/outages/{MONDAY}/balanced", params={"requests": 1}).status_code == 403


async def test_model_days_exist_and_are_counted_before_a_pod_runs_them(spare: str, tmp_path: Path) -> None:
    """J6, J7, J13, J16: a batch is refused as long, and a cancelled simulation releases its key."""
    async with without_pods(spare, tmp_path) as system:
        client = Client(system.client())
        plan: dict[str, Any] = {"first": MONDAY, "last": date(2026, 1, 16), "models": MODELS}
        job_id = client.started(**plan)
        async with connect(spare, name="test") as connection:
            steps = await connection.fetch(
                "select name, state from reactor.steps where job_id = $1 order by position", job_id
            )
        expected = [f"{day}/{model}" for day in Simulation.model_validate(plan).dates for model in MODELS]
        assert [tuple(step) for step in steps] == [(name, "pending") for name in expected]
        assert client.status(job_id)["counts"]["total"] == 30
        assert client.trigger(**plan).json()["job_id"] == job_id
        code, printed = await asyncio.to_thread(system.run_batch, MONDAY, MONDAY, "balanced")
        assert code == 1
        assert f"reactor cancel {job_id}" in printed
        client.operate("cancel", job_id)
        assert client.started(**plan) != job_id


async def test_runtimes_end_and_are_removed_after_a_cancel_and_after_a_kill(spare: str, tmp_path: Path) -> None:
    """J5: with their processes. The models think for a minute here."""
    async with without_pods(spare, tmp_path, think_seconds=60) as system:
        root = tmp_path / "runtime"
        client = Client(system.client())
        await asyncio.to_thread(system.start_pods, "pod-1")

        async def start(*models: str) -> int:
            job_id = client.started(first=MONDAY, last=MONDAY, models=list(models))
            await until(lambda: len(processes(root)) == len(list(root.glob("*/*/config.json"))) == len(models))
            return job_id

        job_id = await start("balanced", "momentum-5")
        environments = [(Path("/proc") / name / "environ").read_text() for name in processes(root)]
        assert len(set(environments)) == 2
        assert not any("postgresql" in variables for variables in environments)
        client.operate("cancel", job_id)
        await until(lambda: not processes(root) and not list(root.glob("*/*")))
        await until(lambda: client.status(job_id)["state"] == "cancelled")
        await start("balanced")
        system.kill("pod-1")
        await until(lambda: not processes(root))
        assert len(list(root.glob("*/*/config.json"))) == 1
        await asyncio.to_thread(system.start_pods, "pod-2")
        # Of the new process.
        await until(lambda: len(list(root.iterdir())) == 1 and len(processes(root)) == 1)


def processes(folder: Path) -> list[str]:
    """The ids of those that run below this folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink().is_relative_to(folder):
                found.append(link.parent.name)
        except OSError:
            continue
    return found


async def test_a_model_that_fails_leaves_no_runtime_and_its_last_line_is_the_error(tmp_path: Path) -> None:
    """J5"""
    printed: list[str] = []
    with pytest.raises(TraderFailed, match="KeyError: 'prices'"), isolated(tmp_path, {}) as runtime:
        assert [path.name for path in tmp_path.iterdir()] == [runtime.folder.name]
        await runtime.run(printed.append)
    assert printed[0].startswith("Traceback")
    assert list(tmp_path.iterdir()) == []


async def test_a_model_day_is_stored_once_by_any_number_of_attempts(
    spare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J2: a process may die after its result is committed, and before its step is."""
    assert command(FOLDER, spare, "alembic", "upgrade", "head").returncode == 0
    monkeypatch.setenv("REACTOR_DATABASE_URL", spare)
    job_id = await execute(spare, JOB)
    engine = open_engine()
    sessions = async_sessionmaker(engine)
    bought = Holding(symbol="ALFA", quantity=2, price=Decimal(30))
    outcome = Outcome(cash=Decimal(40), value=Decimal(100), positions=[bought], trades=[bought])

    async def attempt() -> Decimal:
        async with sessions.begin() as session:
            return await store(session, job_id, ModelDay(MONDAY, "balanced"), Portfolio(value=Decimal(80)), outcome)

    assert set(await asyncio.gather(*(attempt() for _ in range(5)))) == {Decimal("0.25")}
    async with sessions() as session:
        [result] = await find_results(session, job_id, None, None, 10, 0)
    await engine.dispose()
    assert (len(result.positions), len(result.trades), result.turnover) == (1, 1, Decimal(60))


def finished(client: Client, **plan: Any) -> int:
    job_id = client.started(**plan)
    client.finished(job_id)
    return job_id


async def test_pruning_removes_a_simulation_with_its_results(client: Client, connection: Connection, url: str) -> None:
    """J9: after 30 days, every day, and counted."""
    scheduled = await connection.fetchrow("select cron, payload from reactor.schedules where name = 'reactor.prune'")
    assert scheduled is not None
    assert (scheduled["cron"], json.loads(scheduled["payload"])["days"]) == ("17 3 * * *", 30)
    plan: dict[str, Any] = {"first": date(2027, 3, 1), "models": ["balanced"]}
    old, young = [finished(client, **plan, last=date(2027, 3, day)) for day in (1, 2)]
    await connection.execute(
        "update reactor.jobs set created_at = created_at - $2::interval, finished_at = finished_at - $2::interval"
        " where id = $1",
        old,
        timedelta(days=31),
    )
    done = await asyncio.to_thread(command, FOLDER, url, "reactor", "prune", "--days", "30", "--json")
    assert json.loads(done.stdout)["jobs"] == 1
    assert client.http.get(f"/api/simulations/{old}").status_code == 404
    for table in ("model_days", "positions", "trades"):
        left = f"select count(distinct job_id) from simulation.{table} where job_id = any($1)"
        assert await connection.fetchval(left, [old, young]) == 1


async def test_a_locked_table_is_a_503(client: Client, connection: Connection) -> None:
    """J11: after the timeout of the statement."""
    async with connection.transaction():
        await connection.execute("lock table simulation.model_days in access exclusive mode")
        response = await asyncio.to_thread(client.http.get, "/api/results")
    assert response.status_code == 503
    assert response.headers["Retry-After"]
    assert client.http.get("/api/results").status_code == 200


async def test_without_its_database_the_front_end_responds_with_503(tmp_path: Path) -> None:
    """J1, J11: the trigger, the status, the results and the health."""
    with ExitStack() as exits:
        system = System("postgresql://nobody@127.0.0.1:1/none", tmp_path, exits)
        await asyncio.to_thread(system.start_front_end)
        client = Client(system.client())
        responses = [
            client.trigger(first=MONDAY, last=MONDAY, models=MODELS),
            *(client.http.get(path) for path in ("/api/simulations/1", "/api/results", "/health")),
        ]
        assert [response.status_code for response in responses] == [503] * 4
        assert all(response.headers["Retry-After"] for response in responses[:3])


async def test_revisions_of_the_example_match_its_tables_and_ignore_the_schema_of_reactor(
    system: System, url: str
) -> None:
    """J12: autogenerate finds nothing to change, although the results refer to reactor's jobs."""
    done = await asyncio.to_thread(command, FOLDER, url, "alembic", "check")
    assert done.returncode == 0, done.stdout + done.stderr


async def test_a_revision_of_the_example_keeps_earlier_results(spare: str) -> None:
    """J12: a column is added with a default, also for pods of the earlier version."""

    async def migrate(*arguments: str) -> None:
        done = await asyncio.to_thread(command, FOLDER, spare, "alembic", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    await migrate("upgrade", "0001")
    job_id = await execute(spare, JOB)
    insert = (
        "insert into simulation.model_days (job_id, date, model, cash, value, day_return) values ($1, $2, $3, 1, 1, 0)"
    )
    await execute(spare, insert, job_id, MONDAY, "before")
    await migrate("upgrade", "head")
    await execute(spare, insert, job_id, MONDAY, "after")
    assert await execute(spare, "select array_agg(turnover) from simulation.model_days") == [0, 0]
    await migrate("downgrade", "base")
    await migrate("upgrade", "head")


async def test_the_page_of_the_example_shows_the_grid_of_model_days_and_their_returns(
    system: System, client: Client
) -> None:
    """J1, J4: it triggers a simulation, follows it, and shows the log of a model-day."""
    client.http.put("/market/outages/2027-06-02/momentum-5", params={"requests": 3}).raise_for_status()
    async with chromium() as browser:
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        await page.goto(f"{system.address}/")
        await page.fill("#token", system.tokens["anna"])
        await page.press("#token", "Enter")
        await expect(page.locator("#models input")).to_have_count(4)
        await page.fill("[name=first]", "2027-06-01")
        await page.fill("[name=last]", "2027-06-03")
        await page.dblclick("#trigger button")
        await expect(page.locator("#title")).to_contain_text("partial", timeout=30_000)
        [newest] = client.get("/api/simulations", limit=1)["simulations"]
        grid = page.locator("#grid")
        for result in client.get("/api/results", job_id=newest["job_id"]):
            await expect(grid).to_contain_text(f"{100 * float(result['day_return']):.2f} %")
        await expect(grid.locator("[data-state=failed]")).to_have_count(1)
        await expect(grid.locator("[data-state=skipped]")).to_have_count(1)
        await grid.locator("[data-state=failed]").click()
        await expect(page.locator("#lines")).to_contain_text("503")
        await page.click("#retry")
        await expect(page.locator("#title")).to_contain_text("completed", timeout=30_000)
        await expect(grid.locator("[data-state=completed]")).to_have_count(12)
        await expect(page.locator("reactor-progress")).to_have_attribute("data-state", "completed")
        assert errors == []
