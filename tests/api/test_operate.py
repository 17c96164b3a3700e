"""Operator endpoints: what they change, what they reject, and what the audit records."""

from typing import Any
from uuid import UUID

import httpx
import pytest

from reactor.database.connection import Connection
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Failed


async def submit(api: httpx.AsyncClient, **fields: Any) -> int:
    response = await api.post("/v1/jobs", json={"job_type": "work"} | fields)
    identity: int = response.json()["id"]
    return identity


async def end(connection: Connection, worker: Worker, job_id: int, outcome: Any) -> None:
    job = await claim_one(connection, worker, job_id)
    assert job
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome)])


async def test_cancel_returns_the_new_and_the_previous_state(api: httpx.AsyncClient, connection: Connection) -> None:
    job_id = await submit(api)
    done = await api.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "wrong file"})
    assert done.json() == {"jobs": {str(job_id): "cancelled"}, "was": {str(job_id): "pending"}}
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["error"] == "wrong file"
    again = await api.post(f"/v1/jobs/{job_id}/cancel")
    assert (again.status_code, again.json()["state"]) == (409, "cancelled")


async def test_retry_returns_a_finished_job_to_pending(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    job_id = await submit(api)
    early = await api.post(f"/v1/jobs/{job_id}/retry")
    assert (early.status_code, early.json()["state"]) == (409, "pending")
    await end(connection, worker, job_id, Failed("no"))
    assert (await api.post(f"/v1/jobs/{job_id}/retry", json={})).json() == {"jobs": {str(job_id): "pending"}}


async def test_retry_into_a_busy_scope_is_a_409_that_names_the_holder(api: httpx.AsyncClient) -> None:
    first = await submit(api, scope="s", exclusive=True)
    await api.post(f"/v1/jobs/{first}/cancel")
    holder = await submit(api, scope="s", exclusive=True)
    refused = await api.post(f"/v1/jobs/{first}/retry")
    assert (refused.status_code, refused.json()["holder_id"]) == (409, holder)


async def test_recover_over_http_requires_a_dead_worker(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    """P7: only if stale, 409 otherwise; a fresh quota, runnable now."""
    job_id = await submit(api, max_attempts=1)
    refused = await api.post(f"/v1/jobs/{job_id}/recover")
    assert (refused.status_code, refused.json()["state"]) == (409, "pending")
    assert await claim_one(connection, worker, job_id)
    refused = await api.post(f"/v1/jobs/{job_id}/recover")
    assert (refused.status_code, refused.json()["state"]) == (409, "running")
    assert "alive" in refused.json()["detail"]
    await retire_worker(connection, worker.id)
    assert (await api.post(f"/v1/jobs/{job_id}/recover")).json() == {"jobs": {str(job_id): "pending"}}
    job = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert (job["state"], job["run_after"]) == ("pending", None)


async def test_a_pipeline_is_cancelled_and_retried_as_a_whole(
    api: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    jobs = [{"job_type": "work", "name": "a"}, {"job_type": "work", "name": "b", "depends_on": ["a"]}]
    made = (await api.post("/v1/pipelines", json={"jobs": jobs})).json()
    a, b = map(str, made["jobs"].values())
    path = f"/v1/pipelines/{made['pipeline_id']}"
    assert (await api.post(f"{path}/retry")).status_code == 409
    done = (await api.post(f"{path}/cancel", json={"reason": "no"})).json()
    assert done == {"jobs": {a: "cancelled", b: "cancelled"}, "was": {a: "pending", b: "waiting"}}
    refused = await api.post(f"{path}/cancel")
    assert (refused.status_code, refused.json()["state"]) == (409, "cancelled")
    assert (await api.post(f"{path}/retry")).json() == {"jobs": {a: "pending", b: "waiting"}}
    for job_id in (a, b):
        await end(connection, worker, int(job_id), Completed())
    refused = await api.post(f"{path}/retry")
    assert (refused.status_code, refused.json()["state"]) == (409, "completed")


async def test_queues_are_paused_and_draining_is_switched(api: httpx.AsyncClient) -> None:
    for name in ("imports", "a/b", "ä ö"):
        for verb, paused, was in (("pause", True, False), ("pause", True, True), ("resume", False, True)):
            done = await api.post(f"/v1/queues/{name}/{verb}")
            assert done.json() == {"queue": name, "paused": paused, "was_paused": was}
    assert (await api.get("/v1/drain")).json() == {"draining": False}
    assert (await api.post("/v1/drain", json={"on": True})).json() == {"draining": True, "was_draining": False}
    assert (await api.get("/v1/drain")).json() == {"draining": True}
    assert (await api.post("/v1/drain", json={"on": "yes"})).status_code == 422
    assert (await api.post("/v1/drain")).status_code in (400, 415)
    bad = await api.post("/v1/queues/%20x/pause")
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "queue")


@pytest.mark.parametrize(
    ("queue", "job_type", "lane", "target"),
    [
        (None, "charge", "*", "type=charge lane=*"),
        ("mail", None, None, "queue=mail"),
        ("mail", "charge", "customer=17", "queue=mail type=charge lane=customer=17"),
    ],
)
async def test_limits_are_set_listed_and_removed(
    api: httpx.AsyncClient,
    connection: Connection,
    queue: str | None,
    job_type: str | None,
    lane: str | None,
    target: str,
) -> None:
    key = {"queue": queue, "job_type": job_type, "lane": lane}
    values = {"max_running": 5, "rate": 100, "period_seconds": 60.0, "burst": 7}
    for was_set in (False, True):
        done = await api.post("/v1/limits", json=key | values)
        assert done.json() == key | values | {"was_set": was_set}
    assert (await api.get("/v1/limits")).json() == {"limits": [key | values | {"is_declared": False, "running": 0}]}
    assert (await api.post("/v1/limits/remove", json=key)).json() == key | {"is_declared": False}
    assert (await api.post("/v1/limits/remove", json=key)).status_code == 404
    for wrong in ({"max_running": 1}, {"queue": "q", "max_running": -1}, {"queue": "q", "rate": 0}):
        assert (await api.post("/v1/limits", json=wrong)).status_code == 422
    notes = await connection.fetch("select what, target from reactor.audit order by id")
    assert [tuple(note) for note in notes] == [
        ("limit set", target),
        ("limit set", target),
        ("limit remove", target),
    ]


async def test_the_audit_records_every_action_with_caller_and_address(
    api: httpx.AsyncClient, connection: Connection
) -> None:
    """F2: who, what, from where; rejected actions too."""
    job_id = await submit(api)
    pipeline_id = UUID((await api.get(f"/v1/jobs/{job_id}")).json()["pipeline_id"])
    for path in (f"jobs/{job_id}/recover", f"jobs/{job_id}/cancel", f"pipelines/{pipeline_id}/retry", "queues/q/pause"):
        await api.post(f"/v1/{path}")
    await api.post("/v1/drain", json={"on": False})
    notes = await connection.fetch("select * from reactor.audit order by id")
    assert [note["what"] for note in notes] == ["recover", "cancel", "retry", "pause", "drain"]
    assert {note["came_from"] for note in notes} == {"127.0.0.1"}
    assert {note["who"] for note in notes} == {"anonymous"}
