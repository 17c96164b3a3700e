"""Helpers for users' tests: run_until_idle and the pytest plugin."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reactor import Context, Job, NewJob, Registry, Retry, Snooze, submit, submit_many
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.handlers import registry
from reactor.job import JobState
from reactor.testing import run_until_idle
from reactor.worker.claim_loop import ClaimLoop, Timings
from tests.support.catalog import everything
from tests.support.databases import empty_database


async def states(connection: Connection) -> list[tuple[str, str]]:
    return [tuple(r) for r in await connection.fetch("select job_type, state from reactor.jobs order by id")]


async def test_run_until_idle_runs_chained_jobs(database: str, connection: Connection, registry: Registry) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        if job.payload["left"]:
            await ctx.chain("work", {"left": job.payload["left"] - 1})

    await submit(connection, "work", {"left": 4})
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 5}
    assert await run_until_idle(database, registry) == {}


async def test_run_until_idle_runs_dependants_in_order(
    database: str, connection: Connection, registry: Registry
) -> None:
    order: list[str] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        order.append(job.payload["name"])
        if job.payload["name"] == "breaks":
            raise ValueError

    async with connection.transaction():
        names = ("first", "second", "third", "breaks", "never")
        jobs = await submit_many(
            connection, [NewJob(job_type="work", payload={"name": name}, max_attempts=1) for name in names]
        )
        needs = [(1, 0), (2, 1), (4, 3), (4, 2)]
        await connection.executemany(
            "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)",
            [(jobs[job].id, jobs[other].id) for job, other in needs],
        )
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 3, JobState.FAILED: 1}
    assert sorted(order) == ["breaks", "first", "second", "third"]
    assert [name for name in order if name != "breaks"] == ["first", "second", "third"]
    assert [state for _, state in await states(connection)] == ["completed"] * 3 + ["failed", "cancelled"]


async def test_run_until_idle_runs_jobs_of_one_scope_one_at_a_time(
    database: str, connection: Connection, registry: Registry
) -> None:
    at_once, most = 0, 0

    @registry.register("work")
    async def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)  # for another one to show up
        at_once -= 1

    await submit_many(connection, [NewJob(job_type="work", scope="s") for _ in range(10)])
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 10}
    assert most == 1


async def test_delayed_jobs_wait_unless_delays_are_skipped(
    database: str, connection: Connection, registry: Registry
) -> None:
    calls: list[str] = []

    @registry.register("retried", backoff=3600, max_attempts=3)
    async def retried(job: Job) -> None:
        calls.append("retried")
        if job.attempts < 3:
            raise Retry(after=60) if job.attempts == 1 else ValueError

    @registry.register("snoozed")
    async def snoozed(job: Job) -> None:
        calls.append("snoozed")
        if calls.count("snoozed") < 3:
            raise Snooze(3600)

    @registry.register("scheduled")
    async def scheduled(ctx: Context) -> None:
        calls.append("scheduled")

    await submit(connection, "retried")
    await submit(connection, "snoozed")
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('scheduled', 'infinity')")
    assert await run_until_idle(database, registry) == {JobState.PENDING: 2}
    assert sorted(calls) == ["retried", "snoozed"]
    assert await run_until_idle(database, registry, skip_delays=True) == {JobState.PENDING: 2, JobState.COMPLETED: 3}
    assert sorted(calls) == ["retried"] * 3 + ["scheduled"] + ["snoozed"] * 3


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_run_until_idle_returns_immediately_when_idle(
    database: str,
    connection: Connection,
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    in_transaction: bool,
) -> None:
    """And not at the next poll, after ten seconds."""
    monkeypatch.setattr(ClaimLoop, "timings", Timings(recheck_seconds=()))

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        if in_transaction:
            async with ctx.transaction() as connection:
                await connection.execute("select pg_sleep(0.05)")
        if job.payload:
            await ctx.chain("work")

    await submit(connection, "work", {"first": True})
    async with asyncio.timeout(8):
        assert await run_until_idle(database, registry) == {JobState.COMPLETED: 2}


async def test_run_until_idle_runs_immediate_retries(database: str, connection: Connection, registry: Registry) -> None:
    """A retry that became due during a claim used to be left behind occasionally."""

    @registry.register("work", max_attempts=25, backoff=0)
    async def work(job: Job) -> None:
        if job.attempts < 25:
            raise ValueError

    await submit_many(connection, [NewJob(job_type="work") for _ in range(4)])
    counts = await run_until_idle(database, registry, concurrency=2)
    assert counts == {JobState.PENDING: 96, JobState.COMPLETED: 4}


async def test_run_until_idle_uses_the_default_registry(database: str, connection: Connection) -> None:
    await submit(connection, "unregistered")
    assert await run_until_idle(database) == {}
    assert await states(connection) == [("unregistered", "pending")]
    assert "unregistered" not in registry.default.job_types


async def test_run_until_idle_leaves_no_worker(database: str, connection: Connection, registry: Registry) -> None:
    registry.register("work")(lambda: None)
    await run_until_idle(database, registry)
    assert await connection.fetchval("select count(*) from reactor.workers where ended_at is null") == 0


CONFTEST = 'pytest_plugins = ["reactor.pytest_plugin"]\n'
TESTS = """
import asyncio

import asyncpg

from reactor import Context, Registry, submit
from reactor.testing import run_until_idle

registry = Registry()


@registry.register("greet")
async def greet(payload: dict, ctx: Context) -> dict:
    return {"greeting": f"Hello, {payload['name']}!"}


async def run(url: str) -> str:
    connection = await asyncpg.connect(url)
    job = await submit(connection, "greet", {"name": "you"})
    await run_until_idle(url, registry)
    result = await connection.fetchval("select result ->> 'greeting' from reactor.jobs where id = $1", job.id)
    assert await connection.fetchval("select count(*) from reactor.jobs") == 1, "the database is not shared"
    await connection.close()
    return result


def test_without_a_framework(reactor_database):
    assert asyncio.run(run(reactor_database)) == "Hello, you!"


async def test_with_pytest_asyncio(reactor_database):
    assert await run(reactor_database) == "Hello, you!"


async def test_with_pytest_asyncio_again(reactor_database):
    assert await run(reactor_database) == "Hello, you!"


def test_that_leaves_a_connection_open(reactor_databases, reactor_database):
    reactor_databases.disconnect_seconds = 0.1
    loop = asyncio.new_event_loop()
    loop.left = loop.run_until_complete(asyncpg.connect(reactor_database))
"""


def test_the_fixtures_of_the_plugin_work_with_every_kind_of_test(server: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_app.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-q", "-rA"]
    environment: dict[str, Any] = os.environ | {"REACTOR_TEST_DATABASE_URL": server}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.count("\nPASSED") == 4, done.stdout
    assert "4 passed, 1 error" in done.stdout
    assert "the test left connections open" in done.stdout


SCHEMA_TESTS = """
import asyncio
import json
from pathlib import Path

import pytest

from reactor.database.connection import connect
from tests.support.catalog import everything


async def record(url: str, file: Path) -> None:
    async with connect(url, name="test") as connection:
        name, oid = await connection.fetchrow("select current_database(), 'reactor.jobs'::regclass::oid::int")
        file.write_text(json.dumps({"name": name, "oid": oid, "holds": await everything(connection)}))
        await connection.execute("insert into reactor.jobs (job_type) values ('left')")
        await connection.execute("alter table reactor.jobs add column mine text; drop function reactor.prune")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_schema(reactor_database, number):
    asyncio.run(record(reactor_database, Path(f"{number}.json")))
"""


async def test_each_of_a_users_tests_has_a_copy_of_the_migrated_database(
    server: str, connection: Connection, tmp_path: Path
) -> None:
    """D15: with the schema of production in everything, whatever the test before it did to its own. A table that was
    created once has the same oid in all copies of its database, and another one in any other database."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_schema.py").write_text(SCHEMA_TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    checkout = str(Path(__file__).parent.parent)
    environment: dict[str, Any] = os.environ | {"REACTOR_TEST_DATABASE_URL": server, "PYTHONPATH": checkout}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert "3 passed" in done.stdout, done.stdout
    tests = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (1, 2, 3)]
    async with empty_database(server) as url:
        await migrate(url)
        async with connect(url, name="test") as migrated:
            production = await everything(migrated)
    for held in (*(test["holds"] for test in tests), await everything(connection)):
        assert {key for key in held.keys() | production.keys() if held.get(key) != production.get(key)} == set()
    assert len({test["name"] for test in tests}) == 3
    assert len({test["oid"] for test in tests}) == 1
