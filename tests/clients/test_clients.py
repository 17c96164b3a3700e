"""Each client creates jobs in its own idioms, as a producer: what it gets, and what the database then contains."""

import asyncio
import json
import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from reactor.testing import Databases
from tests.clients.registry import SCENARIOS, Client, selected
from tests.clients.routes import ROUTES, find_pgbouncer
from tests.clients.run import Run, run_client

INPUT: dict[str, Any] = json.loads(SCENARIOS.read_text())
CHOSEN = selected(os.environ.get("REACTOR_TEST_CLIENTS", ""))

Runs = Callable[[Client, str], Run]
Returned = Callable[..., Any]


@pytest.fixture(scope="session")
def runs(databases: Databases) -> Runs:
    """The run of a client by a route: the first test that asks for it starts the program."""
    made: dict[tuple[str, str], Run] = {}

    def get(client: Client, route: str) -> Run:
        key = (client.name, route)
        if key not in made:
            made[key] = asyncio.run(run_client(client, route, databases))
        return made[key]

    return get


def _parameters() -> list[Any]:
    named = {f"{client.name}-{route}".replace(" ", "_"): (client, route) for client in CHOSEN for route in ROUTES}
    # The tests of one run share its process.
    return [pytest.param(value, id=name, marks=pytest.mark.xdist_group(name)) for name, value in named.items()]


@pytest.fixture(params=_parameters())
def run(request: pytest.FixtureRequest, runs: Runs) -> Run:
    client, route = request.param
    # `make clients` makes its table from these.
    request.node.user_properties += [("client", client.name), ("route", route)]
    if reason := client.missing():
        pytest.skip(reason)
    if route == "pgbouncer" and not find_pgbouncer():
        pytest.skip("there is no pgbouncer: apt-get install pgbouncer (or brew)")
    found = runs(client, route)
    request.node.user_properties.append(("version", found.version))
    return found


@pytest.fixture
def returned(request: pytest.FixtureRequest, run: Run) -> Returned:
    """What the client printed for a scenario, after checking that it succeeded or may skip it."""

    def get(scenario: str, *, key: str = "returned") -> Any:
        request.node.user_properties.append(("scenario", scenario))
        assert scenario in run.scenarios, f"it printed nothing about {scenario}\n{run.errors}"
        line = run.scenarios[scenario]
        expected = run.client.skips.get(scenario)
        if "skipped" in line:
            assert expected, f"registry.py has no such skip: {line['skipped']}"
            pytest.skip(expected)
        assert not expected, f"registry.py says that it can't do this: {expected}"
        assert key in line, f"{line}\n{run.errors}"
        return line[key]

    return get


# What a job has when its producer gave nothing.
DEFAULTS = {
    "payload": {},
    "queue": "default",
    "priority": 0,
    "run_after": None,
    "max_attempts": None,
    "timeout_seconds": None,
    "tags": [],
    "scope": None,
    "exclusive": False,
    "idempotency_key": None,
}
# What only the engine writes. `state` and `waiting_on` differ in a DAG.
ENGINE = {
    "attempt_id": None,
    "worker_id": None,
    "parent_id": None,
    "broken_by": None,
    "started_at": None,
    "locked_at": None,
    "finished_at": None,
    "attempts": 0,
    "quota": None,
    "children": 0,
    "progress": None,
    "is_current": False,
    "parked": False,
    "locked_by": None,
    "status_message": None,
    "error": None,
    "result": None,
}


def columns(job: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: job[name] for name in names}


def given(job: dict[str, Any]) -> dict[str, Any]:
    """The producer's columns of the row that this input must make."""
    time = job.get("run_after")
    return DEFAULTS | job | {"run_after": time and datetime.fromisoformat(time)}


def check_row(job: dict[str, Any], expected: dict[str, Any]) -> None:
    wanted = given(expected)
    assert columns(job, wanted) == wanted


def check_returned(row: dict[str, Any], job: dict[str, Any]) -> None:
    """The row that the idiom gives, if it gives more than the id."""
    assert int(row["id"]) == job["id"]
    for name in {"pipeline_id", "state", "queue", "tags", "payload"} & row.keys():
        assert row[name] == job[name], name
    if "created_at" in row:
        assert row["created_at"]


def test_a_client_reports_every_scenario(run: Run) -> None:
    assert run.exit_code == 0, run.errors
    assert list(run.scenarios) == list(INPUT), run.errors


def test_the_jobs_of_a_client_belong_to_its_login(run: Run) -> None:
    assert run.jobs
    assert {job["created_by"] for job in run.jobs} == {run.login}


def test_a_client_leaves_the_engines_columns_at_their_defaults(run: Run) -> None:
    for job in run.jobs:
        assert columns(job, ENGINE) == ENGINE, job["job_type"]
        assert run.began <= job["created_at"] <= run.ended, job["job_type"]
        if not job["job_type"].startswith("dag."):
            assert (job["state"], job["waiting_on"]) == ("pending", 0), job["job_type"]


def test_a_client_inserts_a_job(run: Run, returned: Returned) -> None:
    row, job = returned("insert"), run.job("insert")
    check_row(job, INPUT["insert"])
    check_returned(row, job)


def test_a_client_leaves_columns_to_their_defaults(run: Run, returned: Returned) -> None:
    row, job = returned("defaults"), run.job("defaults")
    check_row(job, INPUT["defaults"])
    check_returned(row, job)


def test_a_client_inserts_many_jobs_at_once(run: Run, returned: Returned) -> None:
    result, jobs = returned("batch"), run.jobs_of("batch")
    expected = [given(job) for job in INPUT["batch"]["jobs"]]
    assert result["count"] == len(jobs) == len(expected)
    by_number = sorted(jobs, key=lambda job: int(job["payload"]["n"]))
    assert [columns(job, expected[0]) for job in by_number] == expected
    if result.get("ids") is not None:
        assert sorted(map(int, result["ids"])) == sorted(job["id"] for job in jobs)


def test_a_client_binds_a_value_of_every_type(run: Run, returned: Returned) -> None:
    row, job = returned("bind"), run.job("bind")
    assert int(row["id"]) == job["id"]
    check_row(job, INPUT["bind"])


def test_a_client_may_write_every_column(run: Run, returned: Returned) -> None:
    row, job = returned("every_column"), run.job("every_column")
    assert int(row["id"]) == job["id"]
    check_row(job, INPUT["every_column"])


def test_a_client_inserts_a_dag(run: Run, returned: Returned) -> None:
    ids = {name: int(value) for name, value in returned("dag")["ids"].items()}
    dag = INPUT["dag"]
    jobs = {name: run.job(job["job_type"]) for name, job in dag["jobs"].items()}
    assert ids == {name: job["id"] for name, job in jobs.items()}
    assert {job["pipeline_id"] for job in jobs.values()} == {dag["pipeline_id"]}
    expected = [(ids[e["job"]], ids[e["depends_on"]], e.get("needs", "completed")) for e in dag["dependencies"]]
    edges = [(edge["job_id"], edge["depends_on"], edge["needs"]) for edge in run.dependencies]
    assert sorted(edges) == sorted(expected)
    assert {name: (job["state"], job["waiting_on"]) for name, job in jobs.items()} == {
        "extract": ("pending", 0),
        "left": ("waiting", 1),
        "right": ("waiting", 1),
        "load": ("waiting", 2),
    }


def test_a_client_calls_submit(run: Run, returned: Returned) -> None:
    result, job = returned("submit"), run.job("submit")
    assert result["outcomes"] == ["created", "existing"]
    assert [int(value) for value in result["ids"]] == [job["id"], job["id"]]
    check_row(job, INPUT["submit"])


def test_a_client_gets_the_error_of_a_conflict(run: Run, returned: Returned) -> None:
    error = returned("conflict", key="error")
    assert error.get("sqlstate") in (None, "", "23505")
    assert error.get("constraint") in (None, "", "jobs_idempotency_key_is_taken")
    # Some libraries hide both behind an error of their own.
    assert error.get("sqlstate") or error.get("constraint") or "unique" in error["message"].lower(), error
    run.job("conflict")


def test_a_client_ignores_a_conflict(run: Run, returned: Returned) -> None:
    assert int(returned("ignore_conflict")["created"]) == 0
    run.job("ignore_conflict")


def test_a_client_rolls_back(run: Run, returned: Returned) -> None:
    returned("rollback")
    assert run.jobs_of("rollback") == []


def test_a_client_reads_its_own_jobs(run: Run, returned: Returned) -> None:
    result = returned("read_own")
    assert result["payload"] == INPUT["read_own"]["payload"]
    assert int(result["count"]) == 1
    check_row(run.job("read_own"), INPUT["read_own"])


def test_a_client_does_not_see_the_jobs_of_others(returned: Returned) -> None:
    assert returned("foreign")["found"] is False


def test_a_client_gets_the_last_id(run: Run, returned: Returned) -> None:
    assert int(returned("last_id")["id"]) == run.job("last_id")["id"]
