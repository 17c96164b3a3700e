"""Submitting over HTTP: idempotency keys, exclusive scopes, draining, pipelines and their errors."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from reactor.database import transact
from reactor.database.connection import Connection, connect
from reactor.lifecycle.lease import Worker, register_worker
from reactor.operate.actions import cancel, drain
from reactor.operate.audit import Operator
from tests.support.until import until

ME = Operator("me", "test")


async def count(connection: Connection) -> int:
    number: int = await connection.fetchval("select count(*) from reactor.jobs")
    return number


async def test_a_job_is_accepted_with_all_fields(api: httpx.AsyncClient) -> None:
    """F1, J1: 202 with the job's location."""
    pipeline = str(uuid4())
    sent = {
        "job_type": "csv_ingest",
        "payload": {"file": "ä.csv", "deep": [{"n": 1.5}]},
        "pipeline_id": pipeline,
        "queue": "reports",
        "priority": -3.0,
        "run_after": "2999-01-31T08:00:00+02:00",
        "max_attempts": 7,
        "timeout_seconds": 2.5,
        "tags": ["a", "b"],
        "scope": "year=2026",
        "exclusive": True,
        "idempotency_key": "k",
        "lane": "customer=17",
        "meta": {"region": "eu", "exact": 1.10},
        "submitted_by": "alice",
        "delivery": "at_most_once",
    }
    response = await api.post("/v1/jobs", json=sent)
    assert response.status_code == 202
    made = response.json()
    assert response.headers["location"] == f"/v1/jobs/{made['id']}"
    assert made.pop("warnings")[0]["code"] == "no_handler"
    assert made == {"id": made["id"], "pipeline_id": pipeline, "outcome": "created"}
    job = (await api.get(response.headers["location"])).json()
    assert {name: job[name] for name in sent} == sent | {"run_after": "2999-01-31T06:00:00Z"}


async def test_a_repeated_idempotency_key_returns_the_existing_job(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    """J7: the same range again within 24 h, in whatever state the job is, unless it was cancelled."""
    sent = {"job_type": "work", "idempotency_key": "2026-01"}
    first = await api.post("/v1/jobs", json=sent)
    again = await api.post("/v1/jobs", json=sent)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.headers["location"] == first.headers["location"]
    assert (again.json()["outcome"], again.json()["job"]["id"]) == ("existing", first.json()["id"])
    await cancel(connection, [first.json()["id"]], "no", ME)
    assert (await api.post("/v1/jobs", json=sent)).status_code == 202


async def test_a_busy_exclusive_scope_is_a_409_with_the_blocking_job(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    """F1, J6: table locked by another job, one simulation at a time: 409 with that job's details."""
    sent = {"job_type": "maintain", "scope": "table=a", "exclusive": True}
    first = (await api.post("/v1/jobs", json=sent)).json()
    refused = await api.post("/v1/jobs", json=sent)
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.json()["job"]["id"], refused.json()["job"]["state"]) == (first["id"], "pending")
    in_pipeline = await api.post("/v1/pipelines", json={"jobs": [{"job_type": "free"}, sent]})
    assert (in_pipeline.status_code, in_pipeline.json()["job"]["id"]) == (409, first["id"])
    assert await count(connection) == 1


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/pipelines"])
async def test_draining_rejects_new_jobs_but_returns_those_of_repeated_keys(
    api: httpx.AsyncClient, connection: Connection, path: str
) -> None:
    """F1: drain mode is 503; a client that lost the first response still gets its job."""
    job = {"job_type": "work", "idempotency_key": "k"}
    sent: dict[str, Any] = job if path == "/v1/jobs" else {"jobs": [{"job_type": "other"}, job]}
    first = await api.post(path, json=sent)
    await drain(connection, True, ME)
    again = await api.post(path, json=sent)
    assert (again.status_code, again.headers["location"]) == (200, first.headers["location"])
    before = await count(connection)
    other = job | {"idempotency_key": "new"}
    refused = await api.post(path, json=other if path == "/v1/jobs" else {"jobs": [other]})
    assert (refused.status_code, int(refused.headers["retry-after"])) == (503, 30)
    assert await count(connection) == before
    await drain(connection, False, ME)
    assert (await api.post(path, json=other if path == "/v1/jobs" else {"jobs": [other]})).status_code == 202


async def test_an_expired_idempotency_key_is_rejected_while_draining(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    await api.post("/v1/jobs", json={"job_type": "work", "idempotency_key": "k"})
    await connection.execute("update reactor.jobs set created_at = now() - interval '25 hours'")
    await drain(connection, True, ME)
    assert (await api.post("/v1/jobs", json={"job_type": "work", "idempotency_key": "k"})).status_code == 503


async def test_requests_rejected_by_a_drain_create_nothing(api: httpx.AsyncClient, connection: Connection) -> None:
    """Clients submit during the drain; there are as many jobs as accepted requests."""

    async def submit_until_rejected() -> int:
        number = 0
        while (await api.post("/v1/jobs", json={"job_type": "work"})).status_code == 202:
            number += 1
        return number

    async def are_many() -> bool:
        return await count(connection) >= 20

    submitters = [asyncio.create_task(submit_until_rejected()) for _ in range(4)]
    await until(are_many)
    assert (await api.post("/v1/drain", json={"on": True})).status_code == 200
    accepted = sum(await asyncio.gather(*submitters))
    assert await count(connection) == accepted


async def test_dependencies_can_refer_to_names_numbers_and_ids(api: httpx.AsyncClient, connection: Connection) -> None:
    """F2: one request, all or nothing."""
    older = (await api.post("/v1/jobs", json={"job_type": "work"})).json()["id"]
    response = await api.post(
        "/v1/pipelines",
        json={
            "jobs": [
                {"name": "sum", "job_type": "sum", "depends_on": ["read", {"job": older, "needs": "finished"}]},
                {"name": "read", "job_type": "read", "priority": 5},
                {"job_type": "report", "depends_on": [{"job": "sum"}, older, older]},
            ]
        },
    )
    assert response.status_code == 202, response.text
    made = response.json()
    assert response.headers["location"] == f"/v1/pipelines/{made['pipeline_id']}"
    ids = made["jobs"]
    assert list(ids) == ["sum", "read", "#3"]
    edges = await connection.fetch("select job_id, depends_on, needs from reactor.dependencies order by 1, 2")
    assert [tuple(edge) for edge in edges] == [
        (ids["sum"], older, "finished"),
        (ids["sum"], ids["read"], "completed"),
        (ids["#3"], older, "completed"),
        (ids["#3"], ids["sum"], "completed"),
    ]
    more = await api.post("/v1/pipelines", json={"pipeline_id": made["pipeline_id"], "jobs": [{"job_type": "late"}]})
    assert more.json()["pipeline_id"] == made["pipeline_id"]


@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ([{"job_type": "a", "name": "x"}, {"job_type": "b", "name": "x"}], "jobs[1].name"),
        ([{"job_type": "a", "name": "#1"}], "jobs[0].name"),
        ([{"job_type": "a", "depends_on": ["missing"]}], "jobs[0].depends_on[0]"),
        ([{"job_type": "a", "name": "x", "depends_on": ["x"]}], "jobs[0].depends_on[0]"),
        ([{"job_type": "a", "depends_on": [1, {"job": 1, "needs": "finished"}]}], "jobs[0].depends_on[1]"),
        ([{"job_type": "a", "depends_on": [{"job": 1, "needs": "luck"}]}], "jobs[0].depends_on[0].needs"),
        ([{"job_type": "a", "depends_on": [True]}], "jobs[0].depends_on[0].job"),
        ([{"job_type": "a"}, {"job_type": "b", "priority": 1001}], "jobs[1].priority"),
        ([{"job_type": "a", "pipeline_id": str(UUID(int=1))}], "jobs[0].pipeline_id"),
        (
            [
                {"job_type": "a"},
                {"job_type": "b", "name": "b", "depends_on": ["c"]},
                {"job_type": "c", "name": "c", "depends_on": ["#1", "b"]},
            ],
            "jobs[1].depends_on",
        ),
        ([], "jobs"),
    ],
)
async def test_an_invalid_pipeline_is_rejected_with_the_field(
    api: httpx.AsyncClient, connection: Connection, jobs: list[Any], field: str
) -> None:
    refused = await api.post("/v1/pipelines", json={"jobs": jobs})
    assert refused.status_code == 422
    assert [error["field"] for error in refused.json()["errors"]] == [field]
    assert await count(connection) == 0


async def test_errors_that_only_the_database_detects_are_422(api: httpx.AsyncClient, connection: Connection) -> None:
    """J11: constraint violated: rejected with the reason, and nothing was created."""
    refused = await api.post("/v1/pipelines", json={"jobs": [{"job_type": "a", "depends_on": [4711]}]})
    assert refused.status_code == 422
    assert "Job 4711 does not exist" in refused.text
    assert "reactor:" not in refused.json()["detail"]
    assert await count(connection) == 0


async def test_ten_thousand_jobs_are_accepted_in_one_request(api: httpx.AsyncClient) -> None:
    jobs = [
        {"job_type": "a", "depends_on": [] if n % 100 == 0 else [f"j{n - 1}"], "name": f"j{n}"} for n in range(10000)
    ]
    response = await api.post("/v1/pipelines", json={"jobs": jobs}, timeout=60)
    assert (response.status_code, len(response.json()["jobs"])) == (202, 10000)
    found = (await api.get(response.headers["location"])).json()
    assert [job["id"] for job in found["jobs"]] == sorted(response.json()["jobs"].values())
    too_many = await api.post("/v1/pipelines", json={"jobs": [{"job_type": "a"}] * 10001})
    assert too_many.status_code == 422


async def test_a_locked_table_is_a_503_after_a_short_wait(
    api: httpx.AsyncClient, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J11: database locked: 503."""
    monkeypatch.setattr(transact, "LOCK_SECONDS", 0.1)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("lock table reactor.jobs in access exclusive mode")
        refused = await api.post("/v1/jobs", json={"job_type": "work"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    ("fields", "field"), [({"idempotency_key": "k"}, "idempotency_key"), ({"scope": "s", "exclusive": True}, "scope")]
)
async def test_jobs_of_one_pipeline_that_exclude_each_other_are_rejected(
    api: httpx.AsyncClient, connection: Connection, fields: dict[str, Any], field: str
) -> None:
    response = await api.post("/v1/pipelines", json={"jobs": [{"job_type": "work"} | fields] * 2})
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, f"jobs[1].{field}")
    assert await connection.fetchval("select count(*) from reactor.jobs") == 0


async def know(connection: Connection, name: str = "work") -> None:
    """A live worker has published this type, whose payload has a year."""
    await register_worker(connection, Worker("pod", {name: None}), 600)
    await connection.execute(
        "insert into reactor.job_types (name, delivery, is_checked, version, payload_schema)"
        " values ($1, 'at_least_once', true, 'v', $2)",
        name,
        '{"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}',
    )


async def test_a_payload_that_does_not_fit_its_type_is_refused_and_the_field_named(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    """F1, F13"""
    await know(connection)
    refused = await api.post("/v1/jobs", json={"job_type": "work", "payload": {"year": "x"}})
    problem = refused.json()
    assert (refused.status_code, problem["detail"]) == (422, "payload.year must be an integer.")
    assert problem["errors"] == [{"field": "payload.year", "message": "must be an integer"}]
    assert problem["remedy"] == "GET /v1/job-types/work shows the schema of the payload."
    jobs = [
        {"job_type": "work", "payload": {"year": 1}},
        {"job_type": "work"},
        {"job_type": "work", "payload": {"year": []}},
    ]
    refused = await api.post("/v1/pipelines", json={"jobs": jobs})
    assert (refused.status_code, refused.json()["detail"]) == (422, "2 fields are invalid.")
    assert [error["field"] for error in refused.json()["errors"]] == ["jobs[1].payload.year", "jobs[2].payload.year"]
    assert await connection.fetchval("select count(*) from reactor.jobs") == 0


async def test_a_repeated_request_returns_its_job_although_its_payload_fits_no_more(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    sent = {"job_type": "work", "idempotency_key": "k"}
    first = await api.post("/v1/jobs", json=sent)
    await know(connection)
    again = await api.post("/v1/jobs", json=sent)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    again = await api.post("/v1/pipelines", json={"jobs": [{"job_type": "work"}, sent]})
    assert (again.status_code, again.json()["job"]["id"]) == (200, first.json()["id"])


async def test_the_answer_says_when_no_live_pod_would_run_a_job(api: httpx.AsyncClient, connection: Connection) -> None:
    """F13"""
    await know(connection)
    job = {"job_type": "work", "payload": {"year": 1}}
    assert (await api.post("/v1/jobs", json=job)).json()["warnings"] == []
    other = (await api.post("/v1/jobs", json={"job_type": "wrok"})).json()
    message = "No live pod has a handler for wrok: the job waits for one. Did you mean work?"
    assert other["warnings"] == [{"code": "no_handler", "message": message}]
    why = (await api.get(f"/v1/jobs/{other['id']}/why")).json()["reasons"][0]
    assert (why["code"], why["message"].endswith("Did you mean work?")) == ("no_handler", True)
    pipeline = {"jobs": [job, job | {"queue": "gpu"}, {"job_type": "wrok"}, {"job_type": "wrok"}]}
    made = (await api.post("/v1/pipelines", json=pipeline)).json()
    assert [warning["code"] for warning in made["warnings"]] == ["no_handler"]


async def test_job_types_are_listed_with_their_pods(api: httpx.AsyncClient, connection: Connection) -> None:
    await know(connection, "a/b c")
    [found] = (await api.get("/v1/job-types")).json()["job_types"]
    assert (found["name"], found["pods"], found["queues"], found["is_checked"]) == ("a/b c", ["pod"], None, True)
    assert found["payload_schema"]["required"] == ["year"]
    assert (await api.get("/v1/job-types/a%2Fb%20c")).json() == found
    missing = await api.get("/v1/job-types/other")
    assert (missing.status_code, missing.json()["remedy"]) == (404, "GET /v1/job-types lists those that are known.")
