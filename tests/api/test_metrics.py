"""Metrics: what workers and servers count, and how it reaches /metrics."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reactor import Job, Reactor, Registry, Retry
from reactor.counts import DURATION_BOUNDS, OTHER, Counts, Histogram
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, heartbeat
from reactor.settings import read_settings
from reactor_http.api.access import Permission
from reactor_http.auth.tokens import make_token
from reactor_http.measure import Measure
from tests.support.http_app import make_app, patient
from tests.support.pods import StartPod
from tests.support.until import until

UNCACHED: dict[str, float] = {"metrics_cache_seconds": 0, "metrics_statement_seconds": 20, "metrics_seconds": 30}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(response: httpx.Response) -> Samples:
    """By name and labels, as Prometheus parses them."""
    assert response.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value_of(response: httpx.Response, name: str, **labels: str) -> float | None:
    """The value of the only sample with this name and at least these labels."""
    found = [
        value for (one, has), value in samples(response).items() if one == name and has >= frozenset(labels.items())
    ]
    assert len(found) <= 1, f"several samples match: {found}"
    return found[0] if found else None


@pytest.fixture
async def client(database: str) -> AsyncIterator[httpx.AsyncClient]:
    """Of a server that queries the database for each request."""
    async with serving(make_app(database, timings=patient(**UNCACHED))) as client:
        yield client


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
    await app.state.reactor.close()


async def stored(connection: Connection) -> list[dict[str, Any]]:
    """The counts in the workers' rows, where there are any."""
    rows = await connection.fetch("select counts from reactor.workers where counts is not null order by started_at")
    return [json.loads(row["counts"]) for row in rows]


def test_a_histograms_upper_bounds_are_inclusive() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 12.0)


def test_stored_counts_are_bounded_for_any_number_of_job_types() -> None:
    many = Counts()
    for n in range(3000):
        many.record_duration(f"{n:04}-{'x' * 195}", 0.01)
    summary = many.summary()["durations"]["types"]
    assert len(summary) == 51
    assert sum(summary[OTHER]["counts"]) == 2950
    assert len(json.dumps(many.summary())) < 32_000


def test_the_counts_of_a_job_type_never_decrease() -> None:
    """Prometheus takes a counter that decreases for a restart."""
    few = Counts(max_types=2)
    before: dict[str, int] = {}
    for job_type in ("a", OTHER, "b", "c", "c", "c", "d", "b", "c"):
        few.record_duration(job_type, 1)
        now = {name: sum(one["counts"]) for name, one in few.summary()["durations"]["types"].items()}
        assert all(now[name] >= n for name, n in before.items())
        before = now
    assert sum(before.values()) == 9


async def test_a_pods_counts_are_stored_with_its_heartbeat(start_pod: StartPod, connection: Connection) -> None:
    await start_pod(HEARTBEAT_SECONDS=0.3, LEASE_SECONDS=60)

    async def listens() -> Any:
        return [one for one in await stored(connection) if one["is_listening"]]

    await until(listens)
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 20)")

    async def counted() -> Any:
        # An attempt ends before its end is written, and a poll may find the jobs before the notification arrives.
        return [one for one in await stored(connection) if one["batches"]["sum"] == 20 and one["heard_at"]]

    [summary] = await until(counted)
    assert (summary["ended"], summary["states"]) == (20, {"completed": 20})
    assert sum(summary["durations"]["types"]["noop"]["counts"]) == 20
    batches = summary["batches"]
    assert 1 <= sum(batches["counts"]) <= 20
    assert summary["claims"] >= 1
    assert summary["claimed"] == 20
    assert summary["is_listening"] is True


async def test_a_pod_with_once_stores_its_counts(start_pod: StartPod, connection: Connection) -> None:
    """Even if it exits before the first heartbeat."""
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 5)")
    pod = await start_pod("--once", ready=False)
    assert await pod.exit_code() == 0
    [summary] = await stored(connection)
    assert (summary["ended"], summary["is_listening"]) == (5, None)


async def test_the_last_counts_of_a_killed_worker_process_are_stored(
    start_pod: StartPod, connection: Connection
) -> None:
    """Even if no heartbeat has stored them yet."""
    pod = await start_pod("--health-port", "0")
    [event] = await until(lambda: pod.events("serving health checks"))
    await connection.execute("insert into reactor.jobs (job_type) values ('noop')")

    async def is_stored() -> bool:
        async with httpx.AsyncClient(base_url=event["address"], timeout=20) as client:
            return value_of(await client.get("/metrics"), "reactor_worker_attempts_total") == 1

    await until(is_stored)
    [pid] = pod.workers
    pod.kill(pid)

    async def kept() -> Any:
        return await connection.fetchval("select counts from reactor.workers where ended_at is not null")

    assert json.loads(await until(kept))["ended"] == 1


async def test_heartbeats_with_counts_are_hot_updates(start_pod: StartPod, connection: Connection) -> None:
    """F8: many heartbeats, no new index entries."""
    await start_pod(HEARTBEAT_SECONDS=0.1, LEASE_SECONDS=60)
    pairs = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'reactor.workers'::regclass"

    async def many() -> Any:
        await connection.execute("insert into reactor.jobs (job_type) values ('noop')")
        await connection.execute("select pg_stat_clear_snapshot()")
        row = await connection.fetchrow(pairs)
        return row if row and row["n_tup_upd"] >= 20 else None

    updates, hot = await until(many)
    assert await stored(connection)
    # While a concurrent snapshot keeps old row versions alive, pages fill up, and a few updates move to a new page.
    assert hot > updates * 0.7


async def test_unchanged_counts_are_not_written(database: str, connection: Connection, registry: Registry) -> None:
    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    async with Reactor(database, registry=registry, heartbeat_seconds=0.1, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)

        async def is_stored() -> bool:
            counts = json.loads(json.dumps(reactor.counts.summary()))
            found = await stored(connection)
            return bool(found) and found == [found[0] | counts]

        async def has_beaten(since: datetime) -> bool:
            return bool(await connection.fetchval("select heartbeat_at - $1 > '0.5 s' from reactor.workers", since))

        async def writes_nothing() -> bool:
            """The claims after the start, and what the listener receives, may change the counts during the check."""
            await until(is_stored)
            await connection.execute("update reactor.workers set counts = null")
            beat = await connection.fetchval("select heartbeat_at from reactor.workers")
            await until(lambda: has_beaten(beat))
            return await stored(connection) == []

        await until(writes_nothing)
    [summary] = await stored(connection)
    assert summary["ended"] == 0


async def test_retries_failures_and_durations_are_counted_separately(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("again", max_attempts=3)
    async def again(job: Job) -> None:
        await asyncio.sleep(0.03)  # a duration to count
        if job.attempts < 3:
            raise Retry("not yet", after=0)

    @registry.register("bad", max_attempts=1)
    async def bad(job: Job) -> None:
        raise ValueError

    async with Reactor(database, registry=registry) as reactor:
        await connection.execute("insert into reactor.jobs (job_type) values ('again'), ('bad')")
        await until(lambda: reactor.counts.states.keys() >= {"completed", "failed"})
    [summary] = await stored(connection)
    assert (summary["ended"], summary["failed"], summary["retries"]) == (4, 3, 2)
    again_counts = summary["durations"]["types"]["again"]["counts"]
    assert sum(again_counts) == 3
    assert sum(again_counts[: DURATION_BOUNDS.index(0.025) + 1]) == 0
    assert summary["durations"]["types"]["again"]["sum"] >= 0.09


async def test_metrics_show_the_workload(client: httpx.AsyncClient, connection: Connection, worker: Worker) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 7)")
    await claim(connection, worker, 2)
    await connection.execute(
        "insert into reactor.jobs (job_type, queue, run_after) values ('work', 'q', now() + interval '1 h')"
    )
    await connection.execute("update reactor.jobs set created_at = now() - interval '100 s' where id = 5")
    response = await client.get("/metrics")
    labels = {"queue": "default", "job_type": "work"}
    assert value_of(response, "reactor_jobs", state="due", **labels) == 5
    assert value_of(response, "reactor_jobs", state="running", **labels) == 2
    assert value_of(response, "reactor_jobs", state="scheduled", queue="q", job_type="work") == 1
    assert value_of(response, "reactor_jobs", state="scheduled", **labels) == 0
    assert value_of(response, "reactor_database_up") == 1
    assert value_of(response, "reactor_workers") == 1
    assert value_of(response, "reactor_worker_capacity", pod="pod-1", worker=str(worker.id)) == 10
    assert value_of(response, "reactor_scrape_part_up", part="workload") == 1
    queue_usage = value_of(response, "reactor_notification_queue_usage_ratio")
    assert queue_usage is not None
    assert 0 <= queue_usage < 0.01, "a listener in another database may lag some pages behind"
    assert value_of(response, "process_start_time_seconds")
    await connection.execute("update reactor.jobs set created_at = now() - interval '100 s' where id = 3")
    oldest = value_of(await client.get("/metrics"), "reactor_jobs_oldest_due_seconds", **labels)
    assert oldest is not None
    assert 100 <= oldest < 120


async def test_metrics_show_the_counts_of_workers_for_a_while_after_their_end(
    client: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    counted = Counts(claims=5, wasted_claims=2, wakes=3, polls=4, stale=1)
    for size in (1, 1, 500, 7):
        counted.batches.add(size)
    for seconds in (0.003, 0.2, 9000):
        counted.record_duration("work", seconds)
    text = json.dumps(counted.summary() | {"is_listening": True, "heard_at": 1000.5, "reconnects": 2})
    assert await heartbeat(connection, worker.id, 60, text)
    labels = {"pod": "pod-1", "worker": str(worker.id)}
    for ended in (False, True):
        if ended:
            await connection.execute("update reactor.workers set ended_at = now()")
        response = await client.get("/metrics")
        assert value_of(response, "reactor_worker_claims_total", **labels) == 5
        assert value_of(response, "reactor_worker_empty_claims_total", **labels) == 2
        assert value_of(response, "reactor_worker_wakes_total", by="notification", **labels) == 3
        assert value_of(response, "reactor_worker_wakes_total", by="poll", **labels) == 4
        assert value_of(response, "reactor_worker_preemptions_total", **labels) == 1
        assert value_of(response, "reactor_worker_listening", **labels) == 1
        assert value_of(response, "reactor_worker_silent_seconds", **labels) == 0
        assert value_of(response, "reactor_worker_last_notification_timestamp_seconds", **labels) == 1000.5
        batch = "reactor_worker_settle_batch_size"
        assert value_of(response, f"{batch}_bucket", le="1.0", **labels) == 2
        assert value_of(response, f"{batch}_bucket", le="500.0", **labels) == 4
        assert value_of(response, f"{batch}_sum", **labels) == 509
        duration = "reactor_worker_attempt_duration_seconds"
        assert value_of(response, f"{duration}_bucket", le="0.005", job_type="work", **labels) == 1
        assert value_of(response, f"{duration}_bucket", le="7200.0", job_type="work", **labels) == 2
        assert value_of(response, f"{duration}_bucket", le="+Inf", job_type="work", **labels) == 3
        assert value_of(response, f"{duration}_count", job_type="work", **labels) == 3
        assert value_of(response, "reactor_workers") == (0 if ended else 1)
    await connection.execute("update reactor.workers set ended_at = now() - interval '10 minutes'")
    assert value_of(await client.get("/metrics"), "reactor_worker_claims_total") is None


@pytest.mark.parametrize("strange", ["{}", "[]", "7", '{"claims": "x"}', '{"claims": 1, "states": 3}'])
async def test_counts_of_another_version_do_not_break_other_metrics(
    client: httpx.AsyncClient, connection: Connection, worker: Worker, strange: str
) -> None:
    await connection.execute("update reactor.workers set counts = $1", strange)
    response = await client.get("/metrics")
    assert value_of(response, "reactor_workers") == 1
    assert value_of(response, "reactor_worker_claims_total") is None


async def test_label_values_are_escaped(client: httpx.AsyncClient, connection: Connection) -> None:
    name = 'a "b" \\ {c} ü'
    await connection.execute("insert into reactor.jobs (job_type) values ($1)", name)
    assert value_of(await client.get("/metrics"), "reactor_jobs", state="due", job_type=name) == 1


async def test_metrics_work_without_the_database() -> None:
    async with serving(make_app("postgresql://nobody@127.0.0.1:1/x")) as client:
        response = await client.get("/metrics")
        assert value_of(response, "reactor_database_up") == 0
        assert value_of(response, "process_start_time_seconds")
        assert value_of(response, "reactor_jobs") is None


async def test_a_slow_part_is_omitted_and_reported_as_down(database: str) -> None:
    app = make_app(database, timings=patient(**UNCACHED | {"metrics_statement_seconds": 0.2}))
    async with serving(app) as client, connect(database, name="blocker") as other, other.transaction():
        await other.execute("lock table reactor.workers")

        async def omits_no_other_part() -> bool:
            response = await client.get("/metrics")
            assert value_of(response, "reactor_scrape_part_up", part="workers") == 0
            assert value_of(response, "reactor_database_up") == 1
            return value_of(response, "reactor_scrape_part_up", part="server") == 1

        # On a busy machine the other parts may time out as well, but not every time.
        await until(omits_no_other_part)


async def test_metrics_show_an_old_transaction(
    client: httpx.AsyncClient, database: str, connection: Connection
) -> None:
    async with connect(database, name="old") as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("select 1")
        for _ in range(5):
            await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        response = await client.get("/metrics")
        seconds = value_of(response, "reactor_oldest_transaction_seconds")
        age = value_of(response, "reactor_oldest_xmin_age_transactions")
    assert seconds is not None
    assert seconds > 0
    assert age is not None
    assert age >= 5


async def test_concurrent_scrapes_share_one_query(database: str, connection: Connection) -> None:
    async with serving(make_app(database, timings=patient(metrics_cache_seconds=60))) as client:
        first = await client.get("/metrics")
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        responses = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
    assert value_of(first, "reactor_jobs", state="due") is None
    assert {value_of(response, "reactor_jobs", state="due") for response in responses} == {None}


async def test_requests_are_counted_by_route_template_and_status(client: httpx.AsyncClient) -> None:
    """Callers can't create label values."""
    for _ in range(3):
        await client.get("/v1/stats?days=2")
    await client.get("/v1/stats?days=0")
    await client.get("/v1/made/up/path")
    await client.request("MADEUP", "/v1/stats")
    response = await client.get("/metrics")
    name = "reactor_http_requests_total"
    assert value_of(response, name, method="GET", route="/v1/stats", status="200") == 3
    assert value_of(response, name, method="GET", route="/v1/stats", status="422") == 1
    assert value_of(response, name, method="other", route="/v1/stats", status="405") == 1
    assert value_of(response, name, method="GET", route="/", status="404") == 1
    assert value_of(response, "reactor_http_request_duration_seconds_count", route="/v1/stats") == 5
    assert "made" not in response.text.lower()


async def test_a_failed_request_is_counted_as_a_500(database: str) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError

    app = make_app(database)
    app.router.routes.insert(0, Route("/broken", broken))
    async with serving(app) as client:
        assert (await client.get("/broken")).status_code == 500
        response = await client.get("/metrics")
        assert value_of(response, "reactor_http_requests_total", route="/broken", status="500") == 1


async def test_applications_can_add_metrics(database: str) -> None:
    app = make_app(database)
    app.state.reactor.sources.append(
        lambda: [
            Measure("myapp_caches", "Entries.", "gauge", 3, {"kind": "a"}),
            Measure("myapp_caches", "Entries.", "gauge", 1, {"kind": "b"}),
            Measure("myapp_hits", "Hits.", "counter", 7),
        ]
    )
    assert app.state.edge is app.state.reactor, "the documented name of earlier versions"
    async with serving(app) as client:
        response = await client.get("/metrics")
    assert value_of(response, "myapp_caches", kind="a") == 3
    assert value_of(response, "myapp_caches", kind="b") == 1
    assert value_of(response, "myapp_hits_total") == 7


async def test_metrics_include_the_feed_after_the_first_stream(database: str) -> None:
    app = make_app(database)
    async with serving(app) as client:
        response = await client.get("/metrics")
        assert value_of(response, "reactor_streams") == 0
        assert value_of(response, "reactor_feed_listening") is None
        stream = app.state.reactor.streams.open(
            "caller", None, None, reset="", follow=False, is_authorized=lambda: True
        )
        assert await stream
        await until(lambda: app.state.reactor.streams.feed.is_listening)
        response = await client.get("/metrics")
        assert value_of(response, "reactor_streams") == 1
        assert value_of(response, "reactor_feed_listening") == 1
        assert value_of(response, "reactor_feed_topics", stream="overview") == 1
        assert value_of(response, "reactor_feed_topics", stream="pipelines") == 0
        ticks = value_of(response, "reactor_feed_ticks_total", stream="overview")
        assert ticks is not None
        assert ticks >= 1
        assert value_of(response, "reactor_feed_lag_seconds", stream="overview") is not None


async def test_metrics_require_the_view_permission(database: str) -> None:
    submitter, submitters_entry = make_token("sam", [Permission.SUBMIT])
    viewer, viewers_entry = make_token("vera", [Permission.VIEW])
    app = make_app(database, read_settings({"REACTOR_TOKENS": f"{submitters_entry},{viewers_entry}"}))
    async with serving(app) as client:
        for shown, status in ((None, 401), (submitter, 403), (viewer, 200)):
            headers = {"Authorization": f"Bearer {shown}"} if shown else {}
            assert (await client.get("/metrics", headers=headers)).status_code == status


async def test_openmetrics_is_used_when_accepted(client: httpx.AsyncClient) -> None:
    response = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
