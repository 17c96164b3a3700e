"""GET endpoints: lists in pages, single jobs and pipelines, ETags."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed
from reactor.queries.pipelines import PipelineFilters, list_pipelines

JOB_KEYS = re.findall(
    "[a-z_]+",
    """id job_type state queue priority scope is_current exclusive tags pipeline_id parent_id children attempts quota
    waiting_on locked_by locked_at progress status_message error run_after created_at started_at finished_at
    step_counts durations""",
)


async def run(connection: Connection, worker: Worker, job_id: int, outcome: Any) -> None:
    job = await claim_one(connection, worker, job_id)
    assert job
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome)])


async def submit(api: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await api.post("/v1/jobs", json={"job_type": "work"} | fields)
    assert response.status_code == 202, response.text
    made: dict[str, Any] = response.json()
    return made


async def test_next_leads_through_all_pages_of_jobs(api: httpx.AsyncClient) -> None:
    """J14: newest first."""
    ids = [(await submit(api, tags=["ä&b"]))["id"] for _ in range(5)]
    await submit(api)
    page = (await api.get("/v1/jobs", params={"limit": 2, "tag": "ä&b"})).json()
    assert list(page["jobs"][0]) == JOB_KEYS
    found = [job["id"] for job in page["jobs"]]
    while page["next"]:
        page = (await api.get(page["next"])).json()
        found += [job["id"] for job in page["jobs"]]
    assert found == ids[::-1]


async def test_the_job_list_supports_every_filter(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    """J14: running jobs, and jobs by their attributes."""
    made = await submit(api, queue="fast", scope="year=2026", tags=["a"], meta={"region": "eu", "year": 2026})
    await submit(api, job_type="other")
    await claim_one(connection, worker, made["id"])
    for name, value in (
        ("state", "running"),
        ("job_type", "work"),
        ("queue", "fast"),
        ("scope", "year=2026"),
        ("tag", "a"),
        ("pipeline_id", made["pipeline_id"]),
        ("meta", '{"region": "eu"}'),
    ):
        found = (await api.get("/v1/jobs", params={name: value})).json()["jobs"]
        assert [job["id"] for job in found] == [made["id"]], name


async def test_next_keeps_the_facts_that_were_asked_for(api: httpx.AsyncClient) -> None:
    ids = [(await submit(api, meta={"region": region}))["id"] for region in ("eu", "us", "eu")]
    page = (await api.get("/v1/jobs", params={"meta": '{"region": "eu"}', "limit": 1})).json()
    assert [job["id"] for job in page["jobs"]] == [ids[2]]
    assert [job["id"] for job in (await api.get(page["next"])).json()["jobs"]] == [ids[0]]


@pytest.mark.parametrize("meta", ["region=eu", '["eu"]', "", '{"a": NaN}', '{"a": "\\u0000"}', "[" * 9000])
async def test_facts_that_are_not_an_object_are_refused(api: httpx.AsyncClient, meta: str) -> None:
    refused = await api.get("/v1/jobs", params={"meta": meta})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "meta"
    assert "must be a JSON object" in refused.json()["errors"][0]["message"]


async def test_a_job_is_shown_with_its_steps_and_attempts(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    """J1, J14: status of a job by its id, with its steps and attempts."""
    first = await submit(api)
    await run(connection, worker, first["id"], Errored("x" * 5000, retry_after_seconds=0))
    await connection.execute(
        "insert into reactor.steps (job_id, name, position, state, result, started_at)"
        " values ($1, 'day 1', 0, 'completed', '{\"n\": 1}', now())",
        first["id"],
    )
    job = (await api.get(f"/v1/jobs/{first['id']}")).json()
    assert len(job["error"]) == 5000
    [step] = job["steps"]
    assert (step["job_id"], step["name"], step["result"]) == (first["id"], "day 1", {"n": 1})
    [attempt] = job["earlier_attempts"]
    assert (attempt["outcome"], attempt["number"], attempt["pod"]) == ("error", 1, "pod-1")
    assert attempt["durations"]["total"] >= attempt["durations"]["ran"] > 0
    [listed] = (await api.get("/v1/jobs")).json()["jobs"]
    assert len(listed["error"]) == 2000
    for shown in (job, listed):
        assert shown["durations"]["total"] > shown["durations"]["attempt"]["total"] >= 0
        assert shown["durations"]["ran"] == attempt["durations"]["ran"]


async def test_steps_that_are_named_at_submission_are_shown_and_counted(api: httpx.AsyncClient) -> None:
    """J4, J16: in every response, before a worker claims the job."""
    made = await submit(api, steps=["day 1", "day 2"])
    job = (await api.get(f"/v1/jobs/{made['id']}")).json()
    pipeline = (await api.get(f"/v1/pipelines/{made['pipeline_id']}")).json()
    [listed] = (await api.get("/v1/jobs")).json()["jobs"]
    again = await api.post("/v1/jobs", json={"job_type": "work", "steps": ["x", "x"]})
    expected = dict.fromkeys(("running", "completed", "failed", "skipped"), 0) | {
        "total": 2,
        "pending": 2,
        "current": None,
    }
    assert job["step_counts"] == listed["step_counts"] == pipeline["jobs"][0]["step_counts"] == expected
    for steps in (job["steps"], pipeline["steps"]):
        assert [(step["name"], step["state"], step["attempts"]) for step in steps] == [
            ("day 1", "pending", 0),
            ("day 2", "pending", 0),
        ]
    assert (again.status_code, again.json()["errors"]) == (422, [{"field": "steps", "message": "name 'x' twice"}])


async def test_stored_json_and_extreme_times_are_preserved(api: httpx.AsyncClient, connection: Connection) -> None:
    """Other services may insert numbers and times beyond Python's range."""
    digits = "9" * 5000
    job_id = await connection.fetchval(
        "insert into reactor.jobs (job_type, payload, run_after) values ('work', $1, 'infinity') returning id",
        f'{{"n": {digits}, "x": 1e400, "f": 0.12345678901234567890}}',
    )
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('work', '20000-01-01')")
    await connection.execute("update reactor.jobs set progress = 0.1")
    response = await api.get(f"/v1/jobs/{job_id}")
    assert response.status_code == 200
    assert f'"n": {digits}' in response.text
    assert "0.12345678901234567890" in response.text
    pipeline_id = await connection.fetchval("select pipeline_id from reactor.jobs where id = $1", job_id)
    for path in ("/v1/jobs", f"/v1/pipelines/{pipeline_id}"):
        for job in (await api.get(path)).json()["jobs"]:
            assert job["run_after"].startswith("9999-12-31T23:59:59.999999")
            assert job["progress"] == 0.1
    for why_of in (job_id, job_id + 1):
        assert (await api.get(f"/v1/jobs/{why_of}/why")).json()["reasons"][0]["code"] == "not_due"


async def test_why_lists_the_reasons(api: httpx.AsyncClient) -> None:
    made = await submit(api)
    response = (await api.get(f"/v1/jobs/{made['id']}/why")).json()
    assert (response["job_id"], response["job_type"], response["state"]) == (made["id"], "work", "pending")
    assert [reason["code"] for reason in response["reasons"]] == ["no_handler"]


async def test_a_pipeline_is_shown_with_its_jobs_in_id_order(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    """D11: all jobs in id order, stable; J10: in one query."""
    jobs = [{"job_type": "work", "name": "a"}, {"job_type": "work", "depends_on": ["a"]}]
    made = (await api.post("/v1/pipelines", json={"jobs": jobs})).json()
    first, second = made["jobs"].values()
    await run(connection, worker, first, Completed())
    await connection.execute(
        "insert into reactor.steps (job_id, name, position) values ($1, 'b', 1), ($1, 'a', 0)", second
    )
    found = (await api.get(f"/v1/pipelines/{made['pipeline_id']}")).json()
    assert (found["pipeline"]["state"], found["pipeline"]["progress"]) == ("running", 0.5)
    assert [(job["id"], job["depends_on"]) for job in found["jobs"]] == [(first, []), (second, [first])]
    assert list(found["jobs"][0]) == [*JOB_KEYS, "depends_on"]
    assert [(step["job_id"], step["name"]) for step in found["steps"]] == [(second, "a"), (second, "b")]


@pytest.mark.parametrize("kind", ["jobs", "pipelines"])
async def test_an_unchanged_resource_is_a_304(api: httpx.AsyncClient, connection: Connection, kind: str) -> None:
    made = await submit(api)
    path = f"/v1/{kind}/{made['id' if kind == 'jobs' else 'pipeline_id']}"
    tag = (await api.get(path)).headers["etag"]
    for known in (tag, f'"x", {tag}', "*", tag.removeprefix("W/")):
        again = await api.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    await connection.execute("update reactor.jobs set progress = 0.5")
    changed = await api.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_pipelines_are_listed_by_their_first_job(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    """Adopted rows are never the first job."""
    done = await submit(api, scope="year=2025", tags=["a"])
    failed = await submit(api, job_type="other")
    await submit(api, pipeline_id=done["pipeline_id"], job_type="later")
    await connection.execute("insert into reactor.jobs (job_type) values (null)")
    await run(connection, worker, done["id"], Completed())
    await run(connection, Worker("pod-1", {"other": None}, id=worker.id), failed["id"], Failed("no"))
    listed = (await api.get("/v1/pipelines")).json()
    assert [(p["first_id"], p["job_type"], p["scope"], p["state"], p["jobs"]) for p in listed["pipelines"]] == [
        (failed["id"], "other", None, "failed", 1),
        (done["id"], "work", "year=2025", "running", 2),
    ]
    assert listed["next"] is None
    for name, value in (
        ("state", "running"),
        ("job_type", "work"),
        ("scope", "year=2025"),
        ("tag", "a"),
        ("q", done["pipeline_id"]),
        ("q", done["pipeline_id"].upper()),
        ("q", str(done["id"] + 2)),
        ("q", "AR=20"),
    ):
        found = (await api.get("/v1/pipelines", params={name: value})).json()["pipelines"]
        assert [p["first_id"] for p in found] == [done["id"]], (name, value)
    begins = (await api.get("/v1/pipelines", params={"q": done["pipeline_id"][:6]})).json()["pipelines"]
    assert done["id"] in [p["first_id"] for p in begins]


async def test_next_leads_through_all_pages_of_pipelines(api: httpx.AsyncClient) -> None:
    ids = [(await submit(api, scope=f"s{n}"))["id"] for n in range(5)]
    page = (await api.get("/v1/pipelines", params={"limit": 2, "q": "s"})).json()
    found = [p["first_id"] for p in page["pipelines"]]
    while page["next"]:
        page = (await api.get(page["next"])).json()
        found += [p["first_id"] for p in page["pipelines"]]
    assert found == ids[::-1]


async def many(connection: Connection) -> None:
    """30,000 pipelines, a gap in the ids, one pipeline of 15,000 jobs, and ten pipelines of one job."""
    await connection.execute("set session_replication_role = replica")
    await connection.execute("insert into reactor.jobs (job_type) select 'old' from generate_series(1, 30000)")
    await connection.execute("alter table reactor.jobs alter id restart with 10000000")
    await connection.execute(
        "insert into reactor.jobs (job_type, pipeline_id) select 'big', $1 from generate_series(1, 15000)", uuid4()
    )
    await connection.execute("insert into reactor.jobs (job_type) select 'new' from generate_series(1, 10)")
    await connection.execute("analyze reactor.jobs")


async def test_a_search_reads_a_bounded_part_of_the_table_per_page(connection: Connection) -> None:
    """A page may be short; the next one skips gaps that a prune has left."""
    await many(connection)
    page = await list_pipelines(connection)
    assert [p["job_type"] for p in page.pipelines] == ["new"] * 10 + ["big"]
    assert page.before == 30001
    pages, before = 0, None
    while True:
        page = await list_pipelines(connection, PipelineFilters(state="failed"), before=before)
        pages, before = pages + 1, page.before
        assert page.pipelines == []
        if before is None:
            break
    assert pages == 3
    arguments = [None, 51, "failed", None, None, None, "zzz", None, None]
    assert await rows_read(connection, *arguments) < 45_000


async def test_a_full_page_of_pipelines_reads_few_rows(connection: Connection) -> None:
    await many(connection)
    assert await rows_read(connection, 30001, 51, None, None, None, None, None, None, None) < 1000


async def rows_read(connection: Connection, *arguments: Any) -> int:
    """The number of rows and index entries of jobs that the statement for the list of pipelines reads."""
    await connection.execute("discard plans")
    plan = await connection.fetchval(
        f"explain (analyze, format json, timing off) {statements.LIST_PIPELINES}", *arguments
    )
    total = 0

    def walk(node: dict[str, Any]) -> None:
        nonlocal total
        if node.get("Relation Name") == "jobs":
            assert node["Node Type"] != "Seq Scan"
            removed = node.get("Rows Removed by Filter", 0)
            total += round((node["Actual Rows"] + removed) * node["Actual Loops"])
        for child in node.get("Plans", ()):
            walk(child)

    walk(json.loads(plan)[0]["Plan"])
    return total


async def test_workers_and_queues_are_listed(api: httpx.AsyncClient, connection: Connection, worker: Worker) -> None:
    running = await submit(api, queue="fast")
    await claim_one(connection, worker, running["id"])
    await submit(api)
    await submit(api, run_after="2999-01-01T00:00:00Z")
    await api.post(
        "/v1/pipelines", json={"jobs": [{"job_type": "a", "name": "a"}, {"job_type": "b", "depends_on": ["a"]}]}
    )
    await connection.execute("insert into reactor.queues values ('closed', true, 3)")
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert (shown["id"], shown["pod"], shown["running"], shown["is_alive"]) == (str(worker.id), "pod-1", 1, True)
    assert shown["heartbeat_age_seconds"] >= 0
    found = (await api.get("/v1/queues")).json()
    assert found["draining"] is False
    queues = {queue.pop("queue"): queue for queue in found["queues"]}
    ages = {name: queue.pop("oldest_due_seconds") for name, queue in queues.items()}
    nothing = {"paused": False, "max_running": None, "running": 0, "due": 0, "scheduled": 0, "waiting": 0}
    assert queues == {
        "closed": nothing | {"paused": True, "max_running": 3},
        "default": nothing | {"due": 2, "scheduled": 1, "waiting": 1},
        "fast": nothing | {"running": 1},
    }
    assert ages["default"] > 0
    assert ages["fast"] is None
    await retire_worker(connection, worker.id)
    [shown] = (await api.get("/v1/workers")).json()["workers"]
    assert shown["is_alive"] is False
    await connection.execute("update reactor.workers set ended_at = now() - interval '2 hours'")
    assert (await api.get("/v1/workers")).json() == {"workers": []}


async def test_schedules_are_listed(api: httpx.AsyncClient, connection: Connection) -> None:
    await connection.execute(
        "insert into reactor.schedules (name, job_type, every, payload)"
        " values ('nightly', 'report', '1 day', '{\"a\": 1}')"
    )
    [schedule] = (await api.get("/v1/schedules")).json()["schedules"]
    assert (schedule["name"], schedule["every_seconds"], schedule["payload"]) == ("nightly", 86400, {"a": 1})


@pytest.fixture
async def mounted(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=[Mount("/jobs-of/ours", app)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_all_urls_contain_the_mount_prefix(mounted: httpx.AsyncClient) -> None:
    await mounted.post("/jobs-of/ours/v1/jobs", json={"job_type": "work"})
    made = await mounted.post("/jobs-of/ours/v1/jobs", json={"job_type": "work"})
    assert made.headers["location"].startswith("/jobs-of/ours/v1/jobs/")
    assert (await mounted.get(made.headers["location"])).status_code == 200
    for kind in ("jobs", "pipelines"):
        page = (await mounted.get(f"/jobs-of/ours/v1/{kind}?limit=1")).json()
        assert len((await mounted.get(page["next"])).json()[kind]) == 1
    described = (await mounted.get("/jobs-of/ours/openapi.json")).json()
    assert described["servers"] == [{"url": "/jobs-of/ours"}]
    missing = await mounted.get("/jobs-of/ours/v1/nothing")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
