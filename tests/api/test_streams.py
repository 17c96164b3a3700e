"""Progress streams: events and cursors, slow clients, shutdown, restarts and limits."""

import asyncio
import hashlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import pytest

from reactor.client.pipeline import Pipeline
from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from reactor.feed.cursor import Cursor, parse
from reactor.feed.feed import Feed
from reactor.feed.poller import Poller, Timings
from reactor.feed.subscriptions import Batch, Reader, Sign
from reactor.lifecycle.lease import Worker
from reactor.settings import read_settings
from reactor_http.server.serve import serve_app
from reactor_http.state import AppState
from tests.support.http_app import make_app, patient
from tests.support.servers import StartServer
from tests.support.stream_client import Event, Watcher, open_stream, read_events
from tests.support.until import until


@pytest.fixture
async def here(database: str) -> AsyncIterator[str]:
    """The address of a server in this process, which most tests can use."""
    async with serving(database) as (address, _):
        yield address


@asynccontextmanager
async def feeding(url: str) -> AsyncIterator[Feed]:
    feed = Feed(url, url)
    running = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def feed(database: str) -> AsyncIterator[Feed]:
    async with feeding(database) as feed:
        yield feed


@asynccontextmanager
async def serving(url: str, **timings: float) -> AsyncIterator[tuple[str, AppState]]:
    """A server in this process: its address and its state."""
    app, stop, address = (
        make_app(url, timings=patient(**timings)),
        asyncio.Event(),
        asyncio.get_running_loop().create_future(),
    )
    server = asyncio.create_task(serve_app(app, read_settings({}, port=0), stop, on_listening=address.set_result))
    try:
        yield await address, app.state.reactor
    finally:
        stop.set()
        await server


async def insert(connection: Connection, pipeline_id: UUID, state: str = "pending", count: int = 1) -> list[int]:
    rows = await connection.fetch(
        "insert into reactor.jobs (job_type, pipeline_id) select 'work', $1 from generate_series(1, $2) returning id",
        pipeline_id,
        count,
    )
    ids = [row["id"] for row in rows]
    if state != "pending":
        await set_state(connection, ids, state)
    return ids


async def set_state(connection: Connection, ids: list[int], state: str) -> None:
    await connection.execute(
        "update reactor.jobs set state = $2, finished_at = clock_timestamp() where id = any ($1)", ids, state
    )


async def next_of(events: AsyncIterator[Event], kind: str) -> Event:
    async with asyncio.timeout(20):
        while (event := await anext(events)).kind != kind:
            pass
    return event


async def events_until(response: httpx.Response, kind: str) -> list[Event]:
    events = []
    async with asyncio.timeout(20):
        async for event in read_events(response):
            events.append(event)
            if event.kind == kind:
                return events
    raise AssertionError(f"the stream ended without {kind}: {events}")


async def given(reader: Reader) -> Batch:
    batch = await reader.next()
    assert isinstance(batch, Batch)
    return batch


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def with_times(rows: Any) -> Any:
    """Parses times, which PostgreSQL and Python format differently."""

    def read(row: dict[str, Any]) -> dict[str, Any]:
        times = {name for name, value in row.items() if value and name.endswith(("_at", "_after"))}
        return row | {name: datetime.fromisoformat(row[name]) for name in times}

    return json.loads(json.dumps(rows), object_hook=read)


def path_of(pipeline_id: UUID) -> str:
    return f"/v1/pipelines/{pipeline_id}/events"


async def test_a_stream_sends_a_snapshot_then_changes_then_the_end(connection: Connection, here: str) -> None:
    """D11: all jobs of a pipeline in id order, then live changes."""
    pipeline_id = uuid4()
    ids = await insert(connection, pipeline_id, count=3)
    async with open_stream(here, path_of(pipeline_id)) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        events = read_events(response)
        snapshot = await anext(events)
        assert (snapshot.kind, [job["id"] for job in snapshot.data["jobs"]]) == ("snapshot", ids)
        assert snapshot.data["pipeline"]["state"] == "running"
        assert snapshot.id

        await connection.execute("update reactor.jobs set progress = 0.5 where id = $1", ids[1])
        changed = await anext(events)
        assert (changed.kind, changed.data["id"], changed.data["progress"], changed.id) == ("job", ids[1], 0.5, None)
        after = await anext(events)
        assert (after.kind, after.id != snapshot.id) == ("pipeline", True)

        await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", ids[0])
        step = await anext(events)
        assert (step.kind, step.data["job_id"], step.data["name"]) == ("step", ids[0], "a")
        assert step.id, "it is the last of its batch"

        await set_state(connection, ids, "completed")
        rest = [event async for event in events]
    assert [event.kind for event in rest] == ["job", "job", "job", "pipeline", "end"]
    assert [bool(event.id) for event in rest] == [False] * 4 + [True]
    assert rest[-1].data == {"state": "completed"}


async def test_streams_and_the_api_return_the_same_rows(connection: Connection, here: str) -> None:
    pipeline_id = uuid4()
    (job_id,) = await insert(connection, pipeline_id)
    await connection.execute(
        "update reactor.jobs set run_after = 'infinity', created_at = '2026-01-01T00:00:00.5Z' where id = $1", job_id
    )
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", job_id)
    async with open_stream(here, path_of(pipeline_id)) as response:
        streamed = (await events_until(response, "snapshot"))[0].data
    async with open_stream(here, "/v1/events") as response:
        overview = (await events_until(response, "snapshot"))[0].data["pipelines"]
    async with httpx.AsyncClient(base_url=here) as client:
        whole = (await client.get(f"/v1/pipelines/{pipeline_id}")).json()
        listed = (await client.get("/v1/jobs")).json()["jobs"]
        pipelines = (await client.get("/v1/pipelines")).json()["pipelines"]
    # They count up to the moment of each response.
    durations = [job.pop("durations") for job in (*streamed["jobs"], *whole["jobs"], *listed)]
    assert all(one.keys() == durations[0].keys() and one["waited"] > 0 for one in durations)
    assert streamed == whole
    assert with_times(overview) == with_times(pipelines)
    without_edges = {name: value for name, value in streamed["jobs"][0].items() if name != "depends_on"}
    assert with_times([without_edges]) == with_times(listed)


async def test_a_stream_starts_with_the_retry_interval(connection: Connection, here: str) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    async with open_stream(here, path_of(pipeline_id)) as response:
        async for line in response.aiter_lines():
            assert line == "retry: 2000"
            break


async def test_every_block_of_a_stream_is_one_event(connection: Connection, database: str) -> None:
    """Some clients dispatch an empty message at each blank line, also after a comment or `retry:` alone."""
    pipeline_id = uuid4()
    ids = await insert(connection, pipeline_id)
    cursor = await last_cursor(database, pipeline_id)
    received = ""

    async def read(address: str) -> None:
        nonlocal received
        async with open_stream(address, path_of(pipeline_id), cursor) as response:
            async for text in response.aiter_text():
                received += text

    async with serving(database, stream_keepalive_seconds=0.05) as (address, _):
        reading = asyncio.create_task(read(address))
        # A comment before the first event, which may come late, and one between two events.
        await until(lambda: "\n:" in received)
        await connection.execute("update reactor.jobs set progress = 0.5 where id = $1", ids[0])
        await until(lambda: re.search("\nevent: .*\n:", received, re.DOTALL))
        await set_state(connection, ids, "completed")
        await reading
    blocks = received.removesuffix("\n\n").split("\n\n")
    fields = [[line.partition(":")[0] for line in block.split("\n") if line[:1] != ":"] for block in blocks]
    assert fields[0] == ["retry", "event", "data"]
    assert [names for names in fields[1:] if names not in (["event", "data"], ["event", "data", "id"])] == []


async def last_cursor(database: str, pipeline_id: UUID) -> str | None:
    async with serving(database) as (address, _), open_stream(address, path_of(pipeline_id)) as response:
        return (await events_until(response, "snapshot"))[0].id


async def test_a_cursor_is_sent_after_the_event_that_it_confirms(connection: Connection, here: str) -> None:
    """Some clients store it as soon as they read it: cut off before the data, they would never get that event."""
    pipeline_id = uuid4()
    await insert(connection, pipeline_id, "completed")
    async with open_stream(here, path_of(pipeline_id)) as response:
        blocks = (await response.aread()).decode().removesuffix("\n\n").split("\n\n")
    confirmed = [block.splitlines() for block in blocks if "\nid: " in f"\n{block}"]
    assert [lines[-1].partition(": ")[0] for lines in confirmed] == ["id"] * len(confirmed) != []


async def test_a_finished_stream_that_is_caught_up_is_a_204(connection: Connection, here: str) -> None:
    pipeline_id = uuid4()
    ids = await insert(connection, pipeline_id, "completed")
    watcher = Watcher(path_of(pipeline_id))
    await watcher.follow(here)
    assert (watcher.ended, list(watcher.jobs)) == (True, ids)
    await watcher.follow(here)
    assert watcher.status == 204

    await set_state(connection, ids, "failed")
    await watcher.follow(here)
    assert (watcher.status, watcher.jobs[ids[0]]["state"], watcher.repeated) == (200, "failed", [])


async def test_the_cursor_can_be_given_in_the_url(connection: Connection, here: str) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id, "completed")
    watcher = Watcher(path_of(pipeline_id))
    await watcher.follow(here)
    async with open_stream(here, path_of(pipeline_id), last_event_id=watcher.last_id) as response:
        assert response.status_code == 204


async def test_a_stream_with_follow_stays_open_after_the_end_and_shows_a_retry(
    connection: Connection, here: str
) -> None:
    pipeline_id = uuid4()
    ids = await insert(connection, pipeline_id, "failed")
    async with open_stream(here, path_of(pipeline_id), follow="1") as response:
        events = read_events(response)
        assert [(await anext(events)).kind for _ in range(2)] == ["snapshot", "end"]
        await connection.execute("update reactor.jobs set state = 'pending', finished_at = null where id = $1", ids[0])
        assert (await anext(events)).data["state"] == "pending"
        assert (await anext(events)).data["state"] == "running"


async def test_dependencies_are_sent_with_jobs_that_are_new_to_the_reader(connection: Connection, here: str) -> None:
    pipeline = Pipeline()
    pipeline.job("work", depends_on=[pipeline.job("work"), pipeline.job("work")])
    submitted = await pipeline.submit(connection)
    first, second, last = submitted.jobs
    async with open_stream(here, path_of(submitted.id)) as response:
        events = read_events(response)
        snapshot = await anext(events)
        assert [job["depends_on"] for job in snapshot.data["jobs"]] == [[], [], [first, second]]
        await connection.execute("update reactor.jobs set status_message = 'x' where id = $1", last)
        assert (await anext(events)).data["depends_on"] is None
        await anext(events)
        more = Pipeline(submitted.id)
        more.job("work", depends_on=[last])
        await more.submit(connection)
        assert (await anext(events)).data["depends_on"] == [last]


@pytest.mark.parametrize(
    ("cursor", "reason"),
    [
        ("nonsense", "is invalid"),
        ("1-2", "is invalid"),
        ("1-5-3", "is invalid"),
        ("1-5-9-2.1", "is invalid"),
        ("1-5-9-.", "is invalid"),
        ("1-0-0", "is invalid"),
        ("ffff-1-" + "f" * 16, "is invalid"),
        ("a" * 5000, "is invalid"),
        ("1-5-9", "another database"),
        ("{epoch}-5-ffffffffff", "in the future"),
    ],
)
async def test_an_unusable_cursor_gets_a_reset_with_the_reason(
    connection: Connection, here: str, cursor: str, reason: str
) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    async with open_stream(here, path_of(pipeline_id)) as response:
        epoch = (await events_until(response, "snapshot"))[0].id.split("-")[0]  # type: ignore[union-attr]
    async with open_stream(here, path_of(pipeline_id), cursor.replace("{epoch}", epoch)) as response:
        reset, snapshot = await events_until(response, "snapshot")
    assert (reset.kind, reset.id) == ("reset", None)
    assert reason in reset.data["reason"]
    assert (snapshot.kind, len(snapshot.data["jobs"])) == ("snapshot", 1)


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/v1/pipelines/17/events", 422, "a UUID"),
        ("/v1/pipelines/%00/events", 422, "a UUID"),
        ("/v1/pipelines/00000000-0000-0000-0000-000000000000/events", 404, "no pipeline"),
    ],
)
async def test_a_stream_of_an_unknown_pipeline_is_rejected(here: str, path: str, status: int, detail: str) -> None:
    async with httpx.AsyncClient(base_url=here) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert detail in answer.json()["detail"]


async def test_a_late_commit_is_sent_once_and_delays_no_other_change(
    database: str, connection: Connection, here: str
) -> None:
    pipeline_id = uuid4()
    late, prompt = await insert(connection, pipeline_id, count=2)
    watcher = Watcher(path_of(pipeline_id))
    reading = asyncio.create_task(watcher.follow(here))
    await until(lambda: watcher.jobs)
    async with connect(database, name="late") as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("update reactor.jobs set status_message = 'late' where id = $1", late)
        await connection.execute("update reactor.jobs set status_message = 'prompt' where id = $1", prompt)
        await until(lambda: watcher.jobs[prompt]["status_message"] == "prompt")
        assert "-" in str(watcher.last_id).partition("-")[2].partition("-")[2], "the open transaction is in the cursor"
        await transaction.commit()
    await until(lambda: watcher.jobs[late]["status_message"] == "late")
    assert watcher.repeated == []
    reading.cancel()


async def test_the_overview_sends_every_pipeline_that_changes(connection: Connection, here: str) -> None:
    first, second = uuid4(), uuid4()
    ids = await insert(connection, first, count=2)
    await connection.execute("insert into reactor.jobs (payload) values ('{}')")  # adopted: never run, so no pipeline
    async with open_stream(here, "/v1/events") as response:
        events = read_events(response)
        snapshot = await anext(events)
        (pipeline,) = snapshot.data["pipelines"]
        assert (pipeline["pipeline_id"], pipeline["jobs"], pipeline["first_id"]) == (str(first), 2, ids[0])
        assert pipeline["job_type"] == "work"
        await insert(connection, second)
        changed = await anext(events)
        assert (changed.kind, changed.data["pipeline_id"]) == ("pipeline", str(second))
        await set_state(connection, ids, "completed")
        changed = await anext(events)
        assert (changed.data["pipeline_id"], changed.data["state"]) == (str(first), "completed")
        cursor = changed.id
    await insert(connection, first)
    async with open_stream(here, "/v1/events", cursor) as response:
        missed = await anext(read_events(response))
    assert (missed.kind, missed.data["pipeline_id"], missed.data["jobs"]) == ("pipeline", str(first), 3)


async def test_an_overview_with_too_many_changes_is_reset(connection: Connection, here: str) -> None:
    await insert(connection, uuid4())
    async with open_stream(here, "/v1/events") as response:
        events = read_events(response)
        cursor = (await anext(events)).id
        await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 600)")
        reset, snapshot = await anext(events), await anext(events)
    assert (reset.kind, snapshot.kind, len(snapshot.data["pipelines"])) == ("reset", "snapshot", 100)
    async with open_stream(here, "/v1/events", cursor) as response:
        assert [event.kind for event in await events_until(response, "snapshot")] == ["reset", "snapshot"]


async def test_an_overview_with_an_old_cursor_is_reset_without_reading_all_changes(
    feed: Feed, connection: Connection
) -> None:
    await insert(connection, uuid4())
    reader = feed.join(None, None)
    then = (await given(reader)).cursor
    await insert(connection, uuid4(), count=20_001)
    reader = feed.join(None, then)
    batch = await given(reader)
    assert (batch.is_snapshot, batch.reset) == (True, "too much has changed since")


# Cost


async def test_five_hundred_readers_of_a_pipeline_share_the_polls_of_one(database: str, connection: Connection) -> None:
    async def questions_for(readers: int) -> float:
        pipeline_id = uuid4()
        (job_id,) = await insert(connection, pipeline_id)
        feed = Feed(database, database)
        running = asyncio.create_task(feed.run())
        joined = [feed.join(pipeline_id, None) for _ in range(readers)]
        firsts = await asyncio.gather(*(given(reader) for reader in joined))
        assert len({id(first) for first in firsts}) == 1, "all readers share one batch"
        before = feed.pollers["pipelines"].ticks
        for number in range(10):
            await connection.execute("update reactor.jobs set attempts = $2 where id = $1", job_id, number)
            batches = await asyncio.gather(*(given(reader) for reader in joined))
            assert len({id(batch) for batch in batches}) == 1
        questions = feed.pollers["pipelines"].ticks - before
        for reader in joined:
            feed.leave(reader)
        assert (feed.readers, feed.pollers["pipelines"].topics) == (0, {})
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return questions / 10

    alone = await questions_for(1)
    # One poll per change, and some rechecks: more of them, the longer the test takes.
    assert await questions_for(500) < alone + 20


async def test_a_flood_of_forged_notifications_causes_few_polls(feed: Feed, connection: Connection) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    reader = feed.join(pipeline_id, None)
    await given(reader)
    began, before = time.monotonic(), feed.pollers["pipelines"].ticks
    for number in range(2000):
        await connection.execute("select pg_notify('reactor_feed', $1)", f"{number} " + "x" * 5000)
    elapsed = time.monotonic() - began
    assert feed.pollers["pipelines"].ticks - before <= elapsed / 0.05 + 5


async def test_a_feed_without_readers_does_not_poll(feed: Feed, connection: Connection) -> None:
    pipeline_id = uuid4()
    for _ in range(20):
        await insert(connection, pipeline_id)
    await asyncio.sleep(0.3)  # for polls that must not happen
    assert [poller.ticks for poller in feed.pollers.values()] == [0, 0]


# Slow clients


async def test_a_slow_reader_gets_only_the_latest_states(feed: Feed, connection: Connection) -> None:
    pipeline_id = uuid4()
    one, other = await insert(connection, pipeline_id, count=2)
    quick, slow = feed.join(pipeline_id, None), feed.join(pipeline_id, None)
    await given(quick)
    await given(slow)
    for number in range(5):
        await connection.execute("update reactor.jobs set attempts = $2 where id = $1", one, number + 1)
        await given(quick)
    await connection.execute("update reactor.jobs set attempts = 9 where id = $1", other)
    await given(quick)
    batch = await given(slow)
    jobs = [json.loads(change.body) for change in batch.changes if change.kind == "job"]
    assert {job["id"]: job["attempts"] for job in jobs} == {one: 5, other: 9}
    assert [change.kind for change in batch.changes] == ["job", "job", "pipeline"]
    await connection.execute("update reactor.jobs set attempts = 6 where id = $1", one)
    assert await given(quick) is await given(slow), "it has caught up"


async def test_a_slow_reader_gets_the_dependencies_of_a_new_job_that_changed_since(
    database: str, connection: Connection
) -> None:
    pipeline_id = uuid4()
    (first,) = await insert(connection, pipeline_id)
    async with feeding(database) as feed, asyncio.timeout(20):
        slow, quick = feed.join(pipeline_id, None), feed.join(pipeline_id, None)
        await asyncio.gather(given(slow), given(quick))
        async with connection.transaction():
            (second,) = await insert(connection, pipeline_id)
            await connection.execute("insert into reactor.dependencies values ($1, $2)", second, first)
        await given(quick)
        await connection.execute("update reactor.jobs set status_message = '}' where id = $1", second)
        jobs = [json.loads((await given(reader)).changes[0].body) for reader in (quick, slow)]
    assert [(job["id"], job["status_message"], job["depends_on"]) for job in jobs] == [
        (second, "}", None),
        (second, "}", [first]),
    ]


async def test_a_slow_reader_gets_the_end_even_if_a_step_changed_after_it(
    database: str, connection: Connection
) -> None:
    pipeline_id = uuid4()
    (job_id,) = await insert(connection, pipeline_id)
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", job_id)
    async with feeding(database) as feed, asyncio.timeout(20):
        slow, quick = feed.join(pipeline_id, None), feed.join(pipeline_id, None)
        await asyncio.gather(given(slow), given(quick))
        await set_state(connection, [job_id], "completed")
        assert (await given(quick)).state == "completed"
        await connection.execute("update reactor.steps set state = 'skipped'")
        assert (await given(quick)).state is None
        assert (await given(slow)).state == "completed"


async def test_the_backlog_of_a_slow_overview_reader_is_bounded(database: str, connection: Connection) -> None:
    await insert(connection, uuid4())
    async with feeding(database) as feed, asyncio.timeout(30):
        slow, quick = feed.join(None, None), feed.join(None, None)
        await asyncio.gather(given(slow), given(quick))
        for _ in range(2):
            await connection.execute("insert into reactor.jobs (job_type) select 'work' from generate_series(1, 300)")
            assert len((await given(quick)).changes) == 300
        batch = await given(slow)
    assert (batch.is_snapshot, batch.reset, len(batch.changes)) == (True, "too much has changed since", 100)


async def test_a_stream_that_is_reset_ends_if_its_pipeline_was_pruned(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    async with (
        serving(database) as (address, state),
        open_stream(address, f"/v1/pipelines/{pipeline_id}/events") as response,
    ):
        events = read_events(response)
        assert (await anext(events)).kind == "snapshot"
        await connection.execute("delete from reactor.jobs")
        assert state.streams.feed
        poller = state.streams.feed.pollers["pipelines"]
        poller.start_over(list(poller.topics[pipeline_id].readers), "for a test")
        async with asyncio.timeout(10):
            assert [event async for event in events] == []
        await until(lambda: state.streams.count == 0)
    assert "Traceback" not in caplog.text
    assert "ASGI" not in caplog.text


async def test_a_head_request_for_a_stream_opens_no_stream(connection: Connection, start_server: StartServer) -> None:
    server = await start_server(MAX_STREAMS=1)
    async with httpx.AsyncClient(base_url=server.address, timeout=10) as client:
        for _ in range(2):
            answer = await client.head("/v1/events")
            assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert (await client.get("/health/live")).status_code == 200


async def test_infinite_times_are_sent_as_the_latest_time(database: str, connection: Connection) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    await connection.execute("update reactor.jobs set run_after = 'infinity'")
    async with feeding(database) as feed, asyncio.timeout(20):
        (job, *_) = (await given(feed.join(pipeline_id, None))).changes
    assert json.loads(job.body)["run_after"] == "9999-12-31T23:59:59.999999+00:00"


async def test_opening_a_stream_during_shutdown_is_an_immediate_503(tmp_path: Path) -> None:
    app = make_app(f"postgresql:///none?host={tmp_path}", timings=patient(stream_join_seconds=60))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        asking = asyncio.create_task(client.get("/v1/events"))
        await until(lambda: app.state.reactor.streams.feed)
        began = time.monotonic()
        await app.state.reactor.close()
        answer = await asking
    assert (answer.status_code, answer.json()["detail"]) == (503, "This server is shutting down.")
    assert time.monotonic() - began < 20


async def test_a_stream_whose_client_stops_reading_is_closed_at_the_deadline(
    database: str, connection: Connection
) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id, count=20_000)
    async with serving(database, stream_send_seconds=1.0) as (address, state):
        where = urlsplit(address)
        descriptors = open_files()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((where.hostname, where.port))
            client.send(f"GET {path_of(pipeline_id)} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            await until(lambda: state.streams.count == 1)
            await until(lambda: state.streams.count == 0)
            assert state.streams.feed is not None
            assert state.streams.feed.readers == 0
            # The client's socket and the feed's connections are left; the server's socket is closed.
            await until(lambda: open_files() <= descriptors + 3)


# Shutdown and restarts


async def test_two_hundred_streams_end_promptly_at_shutdown(connection: Connection, start_server: StartServer) -> None:
    server, pipeline_id = await start_server(), uuid4()
    await insert(connection, pipeline_id)
    watchers = [Watcher(path_of(pipeline_id)) for _ in range(200)]
    reading = [asyncio.create_task(watcher.follow(server.address)) for watcher in watchers]
    await until(lambda: all(watcher.jobs for watcher in watchers))
    began = time.monotonic()
    assert await server.stop() == 0
    took = time.monotonic() - began
    await asyncio.gather(*reading)  # raises if a stream was cut off
    assert took < 15, "the shutdown does not wait for clients; on an idle machine it takes less than a second"
    assert "Traceback" not in server.log


async def test_a_client_resumes_at_another_server_after_a_kill(
    connection: Connection, start_server: StartServer
) -> None:
    server, pipeline_id = await start_server(), uuid4()
    one, other = await insert(connection, pipeline_id, count=2)
    watcher = Watcher(path_of(pipeline_id))
    reading = asyncio.create_task(watcher.follow(server.address))
    await until(lambda: watcher.jobs)
    server.end()
    await asyncio.gather(reading, return_exceptions=True)
    await set_state(connection, [one, other], "completed")
    await watcher.follow((await start_server()).address)
    assert ({job["state"] for job in watcher.jobs.values()}, watcher.ended) == ({"completed"}, True)
    assert (watcher.resets, watcher.repeated) == (0, [])


async def test_streams_survive_a_restart_of_the_database(folder: Path) -> None:
    pipeline_id = uuid4()
    postgres = await asyncio.to_thread(start_embedded, folder, version=18)
    url = postgres.url()
    await migrate(url)
    async with connect(url, name="test") as connection:
        (job_id,) = await insert(connection, pipeline_id)
    async with serving(url) as (address, state):
        watcher = Watcher(path_of(pipeline_id))
        reading = asyncio.create_task(watcher.follow(address))
        await until(lambda: watcher.jobs)
        feed = state.streams.feed
        assert feed is not None
        await asyncio.to_thread(postgres.close)
        await until(lambda: not feed.is_listening)
        postgres = await asyncio.to_thread(start_embedded, folder, version=18)
        async with connect(url, name="test") as connection:
            await set_state(connection, [job_id], "completed")
        await until(lambda: watcher.ended)
        await reading
    assert (watcher.resets, watcher.repeated) == (0, [])
    await asyncio.to_thread(postgres.close)


async def test_a_stream_sends_stale_and_fresh_events(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients and metrics can see whether the data is current."""
    monkeypatch.setattr(Poller, "timings", Timings(stale_seconds=0.3))
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    for path, poller in ((path_of(pipeline_id), "pipelines"), ("/v1/events", "overview")):
        # Keep-alives are rare here: the events must not depend on them.
        server = serving(database, stream_keepalive_seconds=60.0)
        async with server as (address, state), open_stream(address, path) as response:
            assert state.streams.feed is not None
            asks = state.streams.feed.pollers[poller]
            events = read_events(response)
            await next_of(events, "snapshot")
            async with connection.transaction():
                await connection.execute("lock table reactor.jobs in access exclusive mode")
                stale = await next_of(events, "stale")
                assert stale.id is None, "a client that reconnects resumes from the event before"
                assert "database" in stale.data["reason"]
                await until(lambda asks=asks: not asks.is_well)
            assert (await next_of(events, "fresh")).id is None
            await connection.execute("update reactor.jobs set progress = coalesce(progress, 0) + 0.1")
            assert (await next_of(events, "pipeline")).id


async def test_a_slow_poll_does_not_delay_the_next_one_for_long(
    feed: Feed, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers have received `fresh`, so their data has to be current."""
    monkeypatch.setattr(Poller, "timings", Timings(stale_seconds=60.0, longest_gap_seconds=0.2))
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    reader = feed.join(pipeline_id, None)
    await given(reader)
    feed.pollers["pipelines"].took_seconds = 3600.0
    await insert(connection, pipeline_id)
    async with asyncio.timeout(20):
        assert (await given(reader)).changes


async def test_a_stream_without_a_database_is_a_503_with_retry_after(
    tmp_path: Path,
) -> None:
    server = serving(f"postgresql:///reactor?host={tmp_path}", stream_join_seconds=0.5)
    async with server as (address, _), httpx.AsyncClient() as client:
        answer = await client.get(address + path_of(uuid4()), timeout=10)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert "database" in answer.json()["detail"]


async def test_a_failover_resets_open_streams(feed: Feed, connection: Connection) -> None:
    """After a failover transaction ids have another meaning."""
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    reader = feed.join(pipeline_id, None)
    await given(reader)
    poller = feed.pollers["pipelines"]
    assert poller.tip is not None
    poller.tip = Cursor("0ther", poller.tip.snapshot)
    await insert(connection, pipeline_id)
    batch = await given(reader)
    assert (batch.is_snapshot, "failed over" in batch.reset) == (True, True)
    assert len(batch.changes) in (2, 3), "the poll may have run before the second insert"


async def test_a_reader_being_reset_gets_stale_at_once_and_fresh_after_the_snapshot(
    feed: Feed, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a failover that takes several tries."""
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    reader, poller = feed.join(pipeline_id, None), feed.pollers["pipelines"]
    await given(reader)
    ask, is_asked, is_back = poller.connection.once, asyncio.Event(), asyncio.Event()

    async def once(question: Any) -> Any:
        if reader.reset:
            is_asked.set()
            await is_back.wait()
        return await ask(question)

    monkeypatch.setattr(poller.connection, "once", once)
    waiting = asyncio.create_task(reader.next())
    assert poller.tip is not None
    poller.tip = Cursor("0ther", poller.tip.snapshot)
    poller.notify()
    async with asyncio.timeout(20):
        await is_asked.wait()
        poller.show(Sign.STALE)
        assert await waiting is Sign.STALE
        poller.show(Sign.FRESH)
        is_back.set()
        assert (await given(reader)).is_snapshot
        assert await reader.next() is Sign.FRESH


async def test_rows_restored_from_another_server_are_streamed_after_their_repair(
    database: str, connection: Connection, here: str
) -> None:
    """Their transaction ids lie in the future: until `reactor migrate` they are shown, but never as changed."""
    pipeline_id = uuid4()
    (job_id,) = await insert(connection, pipeline_id)
    await connection.execute("insert into reactor.steps (job_id, name, position) values ($1, 'a', 1)", job_id)
    await connection.execute("set session_replication_role = replica")
    await connection.execute("update reactor.jobs set changed_xid = 999999999, inserted_xid = 999999999")
    await connection.execute("update reactor.steps set changed_xid = 999999999")
    watcher = Watcher(path_of(pipeline_id))
    reading = asyncio.create_task(watcher.follow(here))
    await until(lambda: watcher.jobs)
    await connection.execute("set session_replication_role = origin")
    await connection.execute("select reactor.notify_feed()")
    await asyncio.sleep(0.3)  # for a batch that must not come
    assert watcher.batches == 1
    await migrate(database)
    await until(lambda: watcher.batches >= 2)
    await connection.execute("update reactor.jobs set status_message = 'x'")
    await until(lambda: watcher.jobs[job_id]["status_message"] == "x")
    reading.cancel()


async def test_revoking_a_token_closes_its_open_streams(
    connection: Connection, start_server: StartServer, tmp_path: Path
) -> None:
    token, tokens = "x" * 40, tmp_path / "tokens"
    entry, replaced_by = (f"anna:view:{hashlib.sha256(text.encode()).hexdigest()}\n" for text in (token, "y" * 40))
    tokens.write_text(entry + replaced_by)
    server, pipeline_id = await start_server(TOKENS_FILE=tokens), uuid4()
    (job_id,) = await insert(connection, pipeline_id)
    watcher = Watcher(path_of(pipeline_id))
    await watcher.follow(server.address)
    assert watcher.status == 401
    reading = asyncio.create_task(watcher.follow(server.address, headers={"authorization": f"Bearer {token}"}))
    await until(lambda: watcher.jobs)
    tokens.write_text(replaced_by)

    async def has_ended() -> bool:
        await connection.execute("update reactor.jobs set attempts = attempts + 1 where id = $1", job_id)
        return reading.done()

    await until(has_ended)


# Limits


async def test_streams_over_the_limit_are_rejected_until_one_ends(
    connection: Connection, start_server: StartServer
) -> None:
    pipeline_id = uuid4()
    await insert(connection, pipeline_id)
    for settings, status in (({"MAX_STREAMS": 2}, 503), ({"MAX_STREAMS_PER_TOKEN": 2}, 429)):
        server = await start_server(**settings)
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(open_stream(server.address, path_of(pipeline_id)))
            async with open_stream(server.address, path_of(pipeline_id)) as third:
                assert (third.status_code, third.headers["retry-after"]) == (status, "5")
        watcher = Watcher(path_of(pipeline_id))
        reading = asyncio.create_task(_follow_until_accepted(watcher, server.address))
        await until(lambda watcher=watcher: watcher.jobs)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _follow_until_accepted(watcher: Watcher, address: str) -> None:
    while not watcher.jobs:
        await watcher.follow(address)


# Cursors


@pytest.mark.parametrize(
    "snapshot", [(1, 1, ()), (10, 20, ()), (10, 20, (10, 12, 19)), (2**40, 2**40 + 5, (2**40 + 1,))]
)
def test_a_cursor_round_trips_through_text(snapshot: Any) -> None:
    cursor = Cursor("1e914dbe9afa9a41", snapshot)
    assert parse(str(cursor)) == cursor


def test_a_cursor_with_too_many_open_transactions_is_not_sent() -> None:
    assert Cursor("1", (10, 10**6, tuple(range(10, 10**5)))).text is None
    assert Cursor("1", (10, 10**6, tuple(range(10, 500)))).text is not None


async def test_the_viewer_role_can_run_the_feeds_statement(
    database: str, connection: Connection, worker: Worker
) -> None:
    await connection.execute("set role reactor_viewer")
    pipeline_id = uuid4()
    feed = Feed(database, database)
    poller = feed.pollers["pipelines"]
    rows = await connection.fetch(poller.statement, None, [], [pipeline_id], [None])
    assert len(rows) == 1
