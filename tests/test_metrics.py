"""What workers and servers count, and how that gets out of their processes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reactor import Job, Reactor, Registry, Retry, counts
from reactor.counts import DURATION_BOUNDS, OTHER, Counts
from reactor.database import Connection
from reactor.histogram import Histogram

Until = Callable[..., Awaitable[Any]]
StartPod = Callable[..., Awaitable[Any]]


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
    await start_pod(HEARTBEAT_SECONDS=0.3, LEASE_SECONDS=5)

    async def listens() -> Any:
        return [one for one in await stored(connection) if one["is_listening"]]

    await until(listens)
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 20)")

    async def counted() -> Any:
        return [one for one in await stored(connection) if one["ended"] == 20]

    [told] = await until(counted)
    assert told["states"] == {"completed": 20}
    assert sum(told["durations"]["types"]["noop"]["counts"]) == 20
    batches = told["batches"]
    assert 1 <= sum(batches["counts"]) <= 20
    assert batches["sum"] == 20
    assert told["claims"] >= 1
    assert told["claimed"] == 20
    assert told["is_listening"] is True
    assert told["heard_at"] is not None


async def test_a_pod_that_runs_once_leaves_its_counts(start_pod: StartPod, connection: Connection) -> None:
    """Long before any heartbeat."""
    await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 5)")
    pod = await start_pod("--once", ready=False)
    assert await asyncio.to_thread(pod.process.wait, 20) == 0
    [told] = await stored(connection)
    assert (told["ended"], told["is_listening"]) == (5, None)


async def test_a_killed_worker_processs_last_words_are_kept(
    start_pod: StartPod, connection: Connection, until: Until
) -> None:
    pod = await start_pod()
    await connection.execute("insert into reactor.jobs (job_type) values ('noop')")
    [pid] = pod.workers

    async def has_told() -> bool:
        return bool(await connection.fetchval("select state = 'completed' from reactor.jobs"))

    await until(has_told)
    await asyncio.sleep(1.5)  # told within a second; nothing shows it before the next heartbeat, which is far
    pod.kill(pid)

    async def kept() -> Any:
        return await connection.fetchval("select counts from reactor.workers where ended_at is not null")

    assert json.loads(await until(kept))["ended"] == 1


async def test_heartbeats_with_counts_stay_hot(start_pod: StartPod, connection: Connection, until: Until) -> None:
    """F8: many heartbeats, no index entry more."""
    await start_pod(HEARTBEAT_SECONDS=0.1, LEASE_SECONDS=5)
    pairs = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'reactor.workers'::regclass"

    async def many() -> Any:
        await connection.execute("insert into reactor.jobs (job_type) values ('noop')")
        await connection.execute("select pg_stat_clear_snapshot()")
        row = await connection.fetchrow(pairs)
        return row if row and row["n_tup_upd"] >= 20 else None

    updates, hot = await until(many)
    assert await stored(connection)
    assert hot == updates


async def test_counts_are_written_only_when_there_is_news(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    async with Reactor(database, registry=registry, heartbeat_seconds=0.1, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)

        async def settled() -> bool:
            # The looks after the start are over: nothing changes any more.
            told = await stored(connection)
            await asyncio.sleep(0.5)
            return bool(told) and told == await stored(connection)

        await until(settled)
        await connection.execute("update reactor.workers set counts = null")
        beat = await connection.fetchval("select heartbeat_at from reactor.workers")

        async def has_beaten() -> bool:
            return bool(await connection.fetchval("select heartbeat_at - $1 > '0.5 s' from reactor.workers", beat))

        await until(has_beaten)
        assert await stored(connection) == []
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
