"""What workers and servers count, and how that gets out of their processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
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

from reactor import Job, Reactor, Registry, Retry, counts
from reactor.counts import DURATION_BOUNDS, OTHER, Counts, Histogram
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker, heartbeat
from reactor.settings import read_settings
from reactor_http.api.access import Permission
from reactor_http.app import create_app
from reactor_http.auth.tokens import make_token
from reactor_http.measure import Measure
from reactor_http.metrics import prometheus

Until = Callable[..., Awaitable[Any]]
StartPod = Callable[..., Awaitable[Any]]


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(answer: httpx.Response) -> Samples:
    """By name and labels, as Prometheus would read them."""
    assert answer.status_code == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value_of(answer: httpx.Response, name: str, **labels: str) -> float | None:
    """Of the only sample with this name and these labels, whatever others it has."""
    found = [value for (one, has), value in samples(answer).items() if one == name and has >= frozenset(labels.items())]
    assert len(found) <= 1, f"there are several: {found}"
    return found[0] if found else None


@pytest.fixture
async def client(database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A server that asks the database each time."""
    monkeypatch.setattr(prometheus, "_KEPT_SECONDS", 0)
    monkeypatch.setattr(prometheus, "_STATEMENT_SECONDS", 20)
    monkeypatch.setattr(prometheus, "_DATABASE_SECONDS", 30)
    async with serving(create_app(database)) as client:
        yield client


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
    await app.state.edge.close()


async def stored(connection: Connection) -> list[dict[str, Any]]:
    """What the workers' rows say, those that say anything."""
    rows = await connection.fetch("select counts from reactor.workers where counts is not null order by started_at")
    return [json.loads(row["counts"]) for row in rows]


def test_a_histogram_counts_each_value_in_the_range_that_ends_with_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 12.0)


def test_what_is_stored_is_bounded_however_many_types_there_are() -> None:
    many = Counts()
    for n in range(3000):
        many.took(f"{n:04}-{'x' * 195}", 0.01)
    told = many.summary()["durations"]["types"]
    assert len(told) == 51
    assert sum(told[OTHER]["counts"]) == 2950
    assert len(json.dumps(many.summary())) < 32_000


def test_a_types_numbers_never_go_back_when_others_become_busier(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that falls is read as a restart."""
    monkeypatch.setattr(counts, "_MOST_TYPES", 2)
    few = Counts()
    before: dict[str, int] = {}
    for job_type in ("a", OTHER, "b", "c", "c", "c", "d", "b", "c"):
        few.took(job_type, 1)
        now = {name: sum(one["counts"]) for name, one in few.summary()["durations"]["types"].items()}
        assert all(now[name] >= n for name, n in before.items())
        before = now
    assert sum(before.values()) == 9


async def test_a_pods_counts_are_stored_with_its_heartbeat(
    start_pod: StartPod, connection: Connection, until: Until
) -> None:
    await start_pod(HEARTBEAT_SECONDS=0.3, LEASE_SECONDS=60)

    async def listens() -> Any:
        return [one for one in await stored(connection) if one["is_listening"]]

    await until(listens)
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 20)")

    async def counted() -> Any:
        # An attempt ends before its ending is written, and a poll may find the jobs before the notification is heard.
        return [one for one in await stored(connection) if one["batches"]["sum"] == 20 and one["heard_at"]]

    [told] = await until(counted)
    assert (told["ended"], told["states"]) == (20, {"completed": 20})
    assert sum(told["durations"]["types"]["noop"]["counts"]) == 20
    batches = told["batches"]
    assert 1 <= sum(batches["counts"]) <= 20
    assert told["claims"] >= 1
    assert told["claimed"] == 20
    assert told["is_listening"] is True


async def test_a_pod_that_runs_once_leaves_its_counts(start_pod: StartPod, connection: Connection) -> None:
    """Long before any heartbeat."""
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 5)")
    pod = await start_pod("--once", ready=False)
    assert await pod.exit_code() == 0
    [told] = await stored(connection)
    assert (told["ended"], told["is_listening"]) == (5, None)


async def test_a_killed_worker_processs_last_words_are_kept(
    start_pod: StartPod, connection: Connection, until: Until
) -> None:
    """Which no heartbeat had stored yet."""
    pod = await start_pod("--health-port", "0")
    [event] = await until(lambda: pod.events("answering health checks"))
    await connection.execute("insert into reactor.jobs (job_type) values ('noop')")

    async def has_told() -> bool:
        async with httpx.AsyncClient(base_url=event["address"], timeout=20) as client:
            return value_of(await client.get("/metrics"), "reactor_worker_attempts_total") == 1

    await until(has_told)
    [pid] = pod.workers
    pod.kill(pid)

    async def kept() -> Any:
        return await connection.fetchval("select counts from reactor.workers where ended_at is not null")

    assert json.loads(await until(kept))["ended"] == 1


async def test_heartbeats_with_counts_stay_hot(start_pod: StartPod, connection: Connection, until: Until) -> None:
    """F8: many heartbeats, no index entry more."""
    await start_pod(HEARTBEAT_SECONDS=0.1, LEASE_SECONDS=60)
    pairs = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'reactor.workers'::regclass"

    async def many() -> Any:
        await connection.execute("insert into reactor.jobs (job_type) values ('noop')")
        await connection.execute("select pg_stat_clear_snapshot()")
        row = await connection.fetchrow(pairs)
        return row if row and row["n_tup_upd"] >= 20 else None

    updates, hot = await until(many)
    assert await stored(connection)
    # While somebody's snapshot keeps old versions alive, a page fills up, and one update of many goes to the next.
    assert hot > updates * 0.7


async def test_counts_are_written_only_when_there_is_news(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    async with Reactor(database, registry=registry, heartbeat_seconds=0.1, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)

        async def has_told() -> bool:
            return await stored(connection) == [json.loads(json.dumps(reactor._claim_loop.summary()))]

        async def has_beaten(since: datetime) -> bool:
            return bool(await connection.fetchval("select heartbeat_at - $1 > '0.5 s' from reactor.workers", since))

        async def stays_silent() -> bool:
            """False: there was news meanwhile, of the looks after the start."""
            await until(has_told)
            told = reactor._claim_loop.summary()
            await connection.execute("update reactor.workers set counts = null")
            beat = await connection.fetchval("select heartbeat_at from reactor.workers")
            await until(lambda: has_beaten(beat))
            written = await stored(connection)
            if told != reactor._claim_loop.summary():
                return False
            assert written == []
            return True

        await until(stays_silent)
    [told] = await stored(connection)
    assert told["ended"] == 0


async def test_retries_failures_and_durations_are_told_apart(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    @registry.register("again", max_attempts=3)
    async def again(job: Job) -> None:
        await asyncio.sleep(0.03)
        if job.attempts < 3:
            raise Retry("not yet", after=0)

    @registry.register("bad", max_attempts=1)
    async def bad(job: Job) -> None:
        raise ValueError

    async with Reactor(database, registry=registry) as reactor:
        await connection.execute("insert into reactor.jobs (job_type) values ('again'), ('bad')")
        await until(lambda: reactor.counts.states.keys() >= {"completed", "failed"})
    [told] = await stored(connection)
    assert (told["ended"], told["failed"], told["retries"]) == (4, 3, 2)
    again_counts = told["durations"]["types"]["again"]["counts"]
    assert sum(again_counts) == 3
    assert sum(again_counts[: DURATION_BOUNDS.index(0.025) + 1]) == 0
    assert told["durations"]["types"]["again"]["sum"] >= 0.09


async def test_metrics_tell_what_there_is_to_do(
    client: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 7)")
    await claim(connection, worker, 2)
    await connection.execute(
        "insert into reactor.jobs (job_type, queue, run_after) values ('work', 'q', now() + interval '1 h')"
    )
    await connection.execute("update reactor.jobs set created_at = now() - interval '100 s' where id = 5")
    answer = await client.get("/metrics")
    labels = {"queue": "default", "job_type": "work"}
    assert value_of(answer, "reactor_jobs", state="due", **labels) == 5
    assert value_of(answer, "reactor_jobs", state="running", **labels) == 2
    assert value_of(answer, "reactor_jobs", state="scheduled", queue="q", job_type="work") == 1
    assert value_of(answer, "reactor_jobs", state="scheduled", **labels) == 0
    assert value_of(answer, "reactor_database_up") == 1
    assert value_of(answer, "reactor_workers") == 1
    assert value_of(answer, "reactor_worker_capacity", pod="pod-1", worker=str(worker.id)) == 10
    assert value_of(answer, "reactor_scrape_part_up", part="workload") == 1
    queue_usage = value_of(answer, "reactor_notification_queue_usage_ratio")
    assert queue_usage is not None
    assert 0 <= queue_usage < 0.01, "whoever listens in another database may be some pages behind"
    assert value_of(answer, "process_start_time_seconds")
    await connection.execute("update reactor.jobs set created_at = now() - interval '100 s' where id = 3")
    oldest = value_of(await client.get("/metrics"), "reactor_jobs_oldest_due_seconds", **labels)
    assert oldest is not None
    assert 100 <= oldest < 120


async def test_metrics_tell_what_workers_counted_and_for_a_while_after_they_ended(
    client: httpx.AsyncClient, connection: Connection, worker: Worker
) -> None:
    told = Counts(claims=5, wasted_claims=2, wakes=3, polls=4, stale=1)
    for size in (1, 1, 500, 7):
        told.batches.add(size)
    for seconds in (0.003, 0.2, 9000):
        told.took("work", seconds)
    text = json.dumps(told.summary() | {"is_listening": True, "heard_at": 1000.5, "reconnects": 2})
    assert await heartbeat(connection, worker.id, 60, text)
    labels = {"pod": "pod-1", "worker": str(worker.id)}
    for ended in (False, True):
        if ended:
            await connection.execute("update reactor.workers set ended_at = now()")
        answer = await client.get("/metrics")
        assert value_of(answer, "reactor_worker_claims_total", **labels) == 5
        assert value_of(answer, "reactor_worker_empty_claims_total", **labels) == 2
        assert value_of(answer, "reactor_worker_wakes_total", by="notification", **labels) == 3
        assert value_of(answer, "reactor_worker_wakes_total", by="poll", **labels) == 4
        assert value_of(answer, "reactor_worker_preemptions_total", **labels) == 1
        assert value_of(answer, "reactor_worker_listening", **labels) == 1
        assert value_of(answer, "reactor_worker_last_notification_timestamp_seconds", **labels) == 1000.5
        batch = "reactor_worker_settle_batch_size"
        assert value_of(answer, f"{batch}_bucket", le="1.0", **labels) == 2
        assert value_of(answer, f"{batch}_bucket", le="500.0", **labels) == 4
        assert value_of(answer, f"{batch}_sum", **labels) == 509
        duration = "reactor_worker_attempt_duration_seconds"
        assert value_of(answer, f"{duration}_bucket", le="0.005", job_type="work", **labels) == 1
        assert value_of(answer, f"{duration}_bucket", le="7200.0", job_type="work", **labels) == 2
        assert value_of(answer, f"{duration}_bucket", le="+Inf", job_type="work", **labels) == 3
        assert value_of(answer, f"{duration}_count", job_type="work", **labels) == 3
        assert value_of(answer, "reactor_workers") == (0 if ended else 1)
    await connection.execute("update reactor.workers set ended_at = now() - interval '10 minutes'")
    assert value_of(await client.get("/metrics"), "reactor_worker_claims_total") is None


@pytest.mark.parametrize("strange", ["{}", "[]", "7", '{"claims": "x"}', '{"claims": 1, "states": 3}'])
async def test_counts_of_another_version_cost_no_other_metric(
    client: httpx.AsyncClient, connection: Connection, worker: Worker, strange: str
) -> None:
    await connection.execute("update reactor.workers set counts = $1", strange)
    answer = await client.get("/metrics")
    assert value_of(answer, "reactor_workers") == 1
    assert value_of(answer, "reactor_worker_claims_total") is None


async def test_names_with_any_character_are_told_as_they_are(client: httpx.AsyncClient, connection: Connection) -> None:
    name = 'a "b" \\ {c} ü'
    await connection.execute("insert into reactor.jobs (job_type) values ($1)", name)
    assert value_of(await client.get("/metrics"), "reactor_jobs", state="due", job_type=name) == 1


async def test_metrics_are_told_without_the_database_too() -> None:
    async with serving(create_app("postgresql://nobody@127.0.0.1:1/x")) as client:
        answer = await client.get("/metrics")
        assert value_of(answer, "reactor_database_up") == 0
        assert value_of(answer, "process_start_time_seconds")
        assert value_of(answer, "reactor_jobs") is None


async def test_a_part_that_takes_too_long_is_left_out_and_said_to_be(
    client: httpx.AsyncClient, database: str, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_STATEMENT_SECONDS", 0.2)
    async with connect(database, name="in the way") as other, other.transaction():
        await other.execute("lock table reactor.workers")

        async def leaves_out_no_other_part() -> bool:
            answer = await client.get("/metrics")
            assert value_of(answer, "reactor_scrape_part_up", part="workers") == 0
            assert value_of(answer, "reactor_database_up") == 1
            return value_of(answer, "reactor_scrape_part_up", part="server") == 1

        # On a busy machine the others may take too long as well, but not each time.
        await until(leaves_out_no_other_part)


async def test_an_old_transaction_shows(client: httpx.AsyncClient, database: str, connection: Connection) -> None:
    async with connect(database, name="old") as other, other.transaction(isolation="repeatable_read"):
        await other.fetchval("select 1")
        for _ in range(5):
            await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        answer = await client.get("/metrics")
        seconds = value_of(answer, "reactor_oldest_transaction_seconds")
        age = value_of(answer, "reactor_oldest_xmin_age_transactions")
    assert seconds is not None
    assert seconds > 0
    assert age is not None
    assert age >= 5


async def test_many_scrapes_are_one_question(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_KEPT_SECONDS", 60)
    async with serving(create_app(database)) as client:
        first = await client.get("/metrics")
        await connection.execute("insert into reactor.jobs (job_type) values ('work')")
        answers = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
    assert value_of(first, "reactor_jobs", state="due") is None
    assert {value_of(answer, "reactor_jobs", state="due") for answer in answers} == {None}


async def test_requests_are_counted_by_route_template_and_status(client: httpx.AsyncClient) -> None:
    """Nothing that a caller makes up becomes a label."""
    for _ in range(3):
        await client.get("/v1/stats?days=2")
    await client.get("/v1/stats?days=0")
    await client.get("/v1/made/up/by/somebody")
    await client.request("MADEUP", "/v1/stats")
    answer = await client.get("/metrics")
    name = "reactor_http_requests_total"
    assert value_of(answer, name, method="GET", route="/v1/stats", status="200") == 3
    assert value_of(answer, name, method="GET", route="/v1/stats", status="422") == 1
    assert value_of(answer, name, method="other", route="/v1/stats", status="405") == 1
    assert value_of(answer, name, method="GET", route="/", status="404") == 1
    assert value_of(answer, "reactor_http_request_duration_seconds_count", route="/v1/stats") == 5
    assert "made" not in answer.text.lower()


async def test_what_breaks_is_counted_as_an_error(database: str) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError

    app = create_app(database)
    app.router.routes.insert(0, Route("/broken", broken))
    async with serving(app) as client:
        assert (await client.get("/broken")).status_code == 500
        answer = await client.get("/metrics")
        assert value_of(answer, "reactor_http_requests_total", route="/broken", status="500") == 1


async def test_other_parts_of_the_process_can_tell_theirs(database: str) -> None:
    app = create_app(database)
    app.state.edge.sources.append(
        lambda: [
            Measure("myapp_caches", "Entries.", "gauge", 3, {"kind": "a"}),
            Measure("myapp_caches", "Entries.", "gauge", 1, {"kind": "b"}),
            Measure("myapp_hits", "Hits.", "counter", 7),
        ]
    )
    async with serving(app) as client:
        answer = await client.get("/metrics")
    assert value_of(answer, "myapp_caches", kind="a") == 3
    assert value_of(answer, "myapp_caches", kind="b") == 1
    assert value_of(answer, "myapp_hits_total") == 7


async def test_metrics_tell_of_streams_and_their_feed_once_there_is_one(database: str, until: Until) -> None:
    app = create_app(database)
    async with serving(app) as client:
        answer = await client.get("/metrics")
        assert value_of(answer, "reactor_streams") == 0
        assert value_of(answer, "reactor_feed_listening") is None
        stream = app.state.edge.streams.open("somebody", None, None, reset="", follows=False, is_welcome=lambda: True)
        assert await stream
        await until(lambda: app.state.edge.streams.feed.is_listening)
        answer = await client.get("/metrics")
        assert value_of(answer, "reactor_streams") == 1
        assert value_of(answer, "reactor_feed_listening") == 1
        assert value_of(answer, "reactor_feed_topics", desk="overview") == 1
        assert value_of(answer, "reactor_feed_topics", desk="pipelines") == 0
        ticks = value_of(answer, "reactor_feed_ticks_total", desk="overview")
        assert ticks is not None
        assert ticks >= 1
        assert value_of(answer, "reactor_feed_lag_seconds", desk="overview") is not None


async def test_metrics_are_for_those_who_may_look(database: str) -> None:
    submitter, submitters_entry = make_token("sam", [Permission.SUBMIT])
    viewer, viewers_entry = make_token("vera", [Permission.VIEW])
    app = create_app(database, read_settings({"REACTOR_TOKENS": f"{submitters_entry},{viewers_entry}"}))
    async with serving(app) as client:
        for shown, status in ((None, 401), (submitter, 403), (viewer, 200)):
            headers = {"Authorization": f"Bearer {shown}"} if shown else {}
            assert (await client.get("/metrics", headers=headers)).status_code == status


async def test_openmetrics_is_spoken_to_who_asks_for_it(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
