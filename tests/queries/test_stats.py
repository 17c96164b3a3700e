"""Statistics of jobs by type and state, and over time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.errors import TooMuchToCount
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.release import release
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome
from reactor.queries.stats import bucket_seconds, history, stats
from tests.support.http_app import make_app, patient


@asynccontextmanager
async def client_of(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        yield client
    await app.state.reactor.close()


@pytest.fixture
async def client(database: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(make_app(database)) as client:
        yield client


async def run_all(connection: Connection, worker: Worker, outcome: Outcome) -> list[int]:
    jobs = await claim(connection, worker, 100)
    await settle(connection, [Ending(job.id, job.attempt_id, outcome) for job in jobs])
    return [job.id for job in jobs]


async def insert(connection: Connection, n: int = 1, columns: str = "job_type", values: str = "'work'") -> None:
    await connection.execute(f"insert into reactor.jobs ({columns}) select {values} from generate_series(1, {n})")


def only(found: list[dict[str, Any]], state: str) -> dict[str, Any]:
    [one] = [one for one in found if one["state"] == state]
    return one


async def test_stats_count_by_type_and_state(connection: Connection, worker: Worker) -> None:
    """D12."""
    await insert(connection, 3)
    await run_all(connection, worker, Completed())
    await insert(connection, 2)
    await run_all(connection, worker, Failed("no"))
    await insert(connection, 4)
    await claim(connection, worker, 1)
    await insert(connection, 1, "job_type, run_after", "'later', now() + interval '1 day'")
    await insert(connection, 1, "job_type", "null::text")
    found = {(one["job_type"], one["state"]): one["count"] for one in await stats(connection, 7)}
    assert found == {
        ("later", "pending"): 1,
        ("work", "completed"): 3,
        ("work", "failed"): 2,
        ("work", "pending"): 3,
        ("work", "running"): 1,
    }


async def test_parked_waiting_and_promoted_jobs_are_counted_once(connection: Connection, worker: Worker) -> None:
    await insert(connection, 3, "job_type, scope", "'work', 's'")
    assert len(await claim(connection, worker, 10)) == 1
    await connection.execute("update reactor.jobs set run_after = now() + interval '1 h' where parked and id = 3")
    async with connection.transaction():
        await insert(connection, 1)
        await connection.execute(
            "insert into reactor.dependencies (job_id, depends_on) select max(id), 1 from reactor.jobs"
        )
    found = {one["state"]: one["count"] for one in await stats(connection, 7)}
    assert found == {"running": 1, "pending": 2, "waiting": 1}


async def test_durations_are_from_the_first_start_to_the_end(connection: Connection, worker: Worker) -> None:
    await insert(connection, 100)
    await run_all(connection, worker, Completed())
    await connection.execute("update reactor.jobs set started_at = finished_at - make_interval(secs => id)")
    [found] = await stats(connection, 1)
    assert found["average_seconds"] == pytest.approx(50.5)
    assert found["p50_seconds"] == pytest.approx(50.5)
    assert found["p95_seconds"] == pytest.approx(95.05)


async def test_jobs_that_have_not_run_have_no_duration(connection: Connection) -> None:
    await insert(connection)
    await connection.execute(statements.CANCEL, [1], "no")
    [found] = await stats(connection, 1)
    assert (found["state"], found["average_seconds"], found["p50_seconds"]) == ("cancelled", None, None)


async def test_failed_attempts_count_as_retries_and_releases_do_not(connection: Connection, worker: Worker) -> None:
    await insert(connection)
    await run_all(connection, worker, Errored("once", 0))
    await connection.execute("update reactor.jobs set run_after = null")
    await run_all(connection, worker, Completed())
    assert only(await stats(connection, 1), "completed")["retried"] == 1
    await insert(connection)
    [job] = await claim(connection, worker, 1)
    await release(connection, {job.id: job.attempt_id}, outcome="released", why="shutdown")
    assert only(await stats(connection, 1), "pending")["retried"] == 0
    await run_all(connection, worker, Completed())
    assert only(await stats(connection, 1), "completed")["retried"] == 1


async def test_a_crash_that_is_not_charged_counts_as_a_retry(connection: Connection, worker: Worker) -> None:
    await insert(connection)
    [job] = await claim(connection, worker, 1)
    await release(connection, {job.id: job.attempt_id}, outcome="crashed", why="killed")
    await run_all(connection, worker, Completed())
    assert await connection.fetchval("select attempts from reactor.jobs") == 1
    assert only(await stats(connection, 1), "completed")["retried"] == 1


async def test_stats_exclude_jobs_that_ended_earlier_and_include_all_unfinished_ones(
    connection: Connection, worker: Worker
) -> None:
    await insert(connection, 2)
    await run_all(connection, worker, Completed())
    await insert(connection)
    await connection.execute("update reactor.jobs set created_at = now() - interval '40 days'")
    await connection.execute("update reactor.jobs set finished_at = now() - interval '3 days' where id = 1")
    assert {one["state"]: one["count"] for one in await stats(connection, 2)} == {"completed": 1, "pending": 1}
    assert {one["state"]: one["count"] for one in await stats(connection, 4)} == {"completed": 2, "pending": 1}


async def test_history_has_every_bucket_and_counts_each_job_in_one(connection: Connection, worker: Worker) -> None:
    await insert(connection, 5)
    await run_all(connection, worker, Completed())
    await connection.execute(
        "update reactor.jobs set created_at = now() - interval '30 minutes',"
        " started_at = now() - interval '20 minutes 4 seconds', finished_at = now() - interval '20 minutes'"
    )
    await insert(connection, 2)
    await run_all(connection, worker, Failed("no"))
    found = await history(connection, 60)
    assert (found["minutes"], found["bucket_seconds"]) == (60, 60)
    buckets = found["buckets"]
    assert len(buckets) == 61
    assert {b["at"] - a["at"] for a, b in pairwise(buckets)} == {timedelta(seconds=60)}
    assert sum(one["created"] for one in buckets) == 7
    assert sum(one["finished"] for one in buckets) == 7
    assert sum(one["failed"] for one in buckets) == 2
    [old] = [one for one in buckets if one["finished"] == 5]
    age = datetime.now(UTC) - old["at"]
    assert timedelta(minutes=20) <= age <= timedelta(minutes=22)
    first = found["durations"][0]
    assert (first["job_type"], first["count"], first["at"]) == ("work", 5, old["at"])
    assert first["p50_seconds"] == pytest.approx(4)


@pytest.mark.parametrize(("minutes", "seconds"), [(5, 5), (6, 10), (60, 60), (61, 120), (240, 300), (1440, 1800)])
def test_history_has_about_sixty_buckets_of_a_round_width(minutes: int, seconds: int) -> None:
    assert bucket_seconds(minutes) == seconds


async def test_durations_over_time_are_those_of_the_busiest_types(connection: Connection, worker: Worker) -> None:
    types = [f"type-{n:02}" for n in range(25)]
    for n, job_type in enumerate(types):
        await connection.execute(
            "insert into reactor.jobs (job_type) select $1 from generate_series(1, $2)", job_type, n + 1
        )
    await connection.execute("update reactor.jobs set state = 'completed', started_at = now(), finished_at = now()")
    found = await history(connection, 5)
    assert sorted({one["job_type"] for one in found["durations"]}) == types[5:]


async def test_slow_statistics_are_cancelled_by_the_server(connection: Connection) -> None:
    await insert(connection, 20_000)
    with pytest.raises(TooMuchToCount, match="timed out"):
        await stats(connection, 7, within_seconds=0.001)
    assert await connection.fetchval("show statement_timeout") == "0"


async def test_statistics_over_http(client: httpx.AsyncClient, connection: Connection, worker: Worker) -> None:
    await insert(connection, 2)
    await run_all(connection, worker, Completed())
    answer = await client.get("/v1/stats")
    assert answer.status_code == 200
    body = answer.json()
    assert body["days"] == 7
    [found] = body["types"]
    assert set(found) == {
        *("job_type", "state", "count", "average_seconds", "p50_seconds", "p95_seconds", "retried"),
    }
    assert (found["job_type"], found["state"], found["count"], found["retried"]) == ("work", "completed", 2, 0)
    body = (await client.get("/v1/stats/history?minutes=5")).json()
    assert (body["minutes"], body["bucket_seconds"]) == (5, 5)
    assert sum(one["finished"] for one in body["buckets"]) == 2
    assert datetime.fromisoformat(body["buckets"][0]["at"]).utcoffset() == timedelta(0)
    assert set(body["durations"][0]) == {"job_type", "at", "p50_seconds", "p95_seconds", "count"}


@pytest.mark.parametrize(
    "query",
    [
        "stats?days=0",
        "stats?days=91",
        "stats?days=x",
        "stats?days=-1",
        "stats/history?minutes=4",
        "stats/history?minutes=1441",
        "stats?days=%C2%B2",
    ],
)
async def test_invalid_parameters_of_statistics_are_refused_by_name(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] in query


async def test_repeated_requests_for_statistics_share_a_cached_response(database: str, connection: Connection) -> None:
    async with client_of(make_app(database, timings=patient(stats_cache_seconds=60))) as client:
        assert (await client.get("/v1/stats?days=3")).json()["types"] == []
        await insert(connection)
        assert (await client.get("/v1/stats?days=3")).json()["types"] == []
        assert len((await client.get("/v1/stats?days=4")).json()["types"]) == 1


async def test_statistics_of_an_unreachable_database_are_a_503() -> None:
    async with client_of(make_app("postgresql://user@127.0.0.1:1/x")) as client:
        answer = await client.get("/v1/stats")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.headers["content-type"] == "application/problem+json"
