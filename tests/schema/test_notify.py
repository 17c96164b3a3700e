"""Doorbells and `changed`: whoever writes a row, those who listen hear of it, and streams can resume exactly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactor.client.submit import NewJob, submit, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker, register_worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Errored


class Listener:
    def __init__(self, connection: Connection) -> None:
        self.heard: list[str] = []
        self._connection = connection

    def hear(self, *notification: Any) -> None:
        self.heard.append(notification[2])

    async def all_arrived(self) -> None:
        await self._connection.execute("select 1")

    async def rings(self) -> list[str]:
        """What was heard since the last call: a round trip makes sure that everything sent has arrived."""
        await asyncio.sleep(0.03)  # longer than a bell stays silent after a ring
        await self.all_arrived()
        heard, self.heard = self.heard, []
        return sorted(set(heard))


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Listener]:
    async with connect(url, name="listener") as connection:
        listener = Listener(connection)
        for channel in ("reactor_jobs", "reactor_feed"):
            await connection.add_listener(channel, listener.hear)
        yield listener
        for channel in ("reactor_jobs", "reactor_feed"):
            await connection.remove_listener(channel, listener.hear)


async def test_new_and_runnable_jobs_ring_for_all_and_every_other_change_for_the_feed(
    database: str, connection: Connection
) -> None:
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    async with listening(database) as bell:
        new, both, feed = ["reactor_jobs"], ["reactor_feed", "reactor_jobs"], ["reactor_feed"]
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert await bell.rings() == new
        await submit(connection, "a", scope="s")
        assert await bell.rings() == new
        await submit_many(connection, [NewJob(job_type="a", scope="s") for _ in range(100)])
        assert await bell.rings() == new
        [first, second] = await claim(connection, worker, 10)
        assert await bell.rings() == feed
        await connection.fetch(statements.PROGRESS, [first.id], [first.attempt_id], [0.5], ["half"], None)
        assert await bell.rings() == feed
        await settle(connection, [Ending(first.id, first.attempt_id, Completed())])
        assert await bell.rings() == feed
        await settle(connection, [Ending(second.id, second.attempt_id, Completed())])
        assert await bell.rings() == both, "the next of the scope"
        [third] = await claim(connection, worker, 10)
        assert await bell.rings() == feed
        await settle(connection, [Ending(third.id, third.attempt_id, Errored("no", 3600))])
        assert await bell.rings() == both, "a retry, and the next of the scope"
        await connection.execute("update reactor.jobs set run_after = now() where run_after is not null")
        assert await bell.rings() == both
        await connection.fetch(statements.PROMOTE, 10)
        assert await bell.rings() == both
        await connection.execute("insert into reactor.jobs (job_type, run_after) values ('a', now() + interval '1 h')")
        assert await bell.rings() == new, "so that the promoter can set its alarm"
        await register_worker(connection, Worker("other", {}), 600)
        assert await bell.rings() == []
        await connection.execute("insert into reactor.queues (name, paused) values ('q', false)")
        assert await bell.rings() == ["reactor_jobs"], "a queue was opened"
        await connection.execute("update reactor.settings set draining = false")
        assert await bell.rings() == ["reactor_jobs"], "draining ended"


async def test_a_released_dependant_rings(database: str, connection: Connection) -> None:
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    async with connection.transaction():
        await submit_many(connection, [NewJob(job_type="a") for _ in range(2)])
        await connection.execute("insert into reactor.dependencies values (2, 1)")
    assert (job := await claim_one(connection, worker, 1))
    async with listening(database) as bell:
        await bell.rings()
        await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        assert await bell.rings() == ["reactor_feed", "reactor_jobs"]


async def test_a_scope_that_moves_on_rings_also_for_a_job_that_was_never_parked(
    database: str, connection: Connection
) -> None:
    """A claim may have met it while the settle had the scope's lock, and passed it by."""
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    await submit(connection, "a", scope="s")
    [job] = await claim(connection, worker, 10)
    await submit(connection, "a", scope="s")
    async with listening(database) as bell:
        await bell.rings()
        await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        assert "reactor_jobs" in await bell.rings()


async def test_it_rings_at_commit_and_not_before_nor_without(database: str, connection: Connection) -> None:
    """A transaction that rang early and stayed open would silence its neighbours."""
    async with listening(database) as bell, connect(database, name="neighbour") as neighbour:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        before = await connection.fetchval("select last_value from reactor.jobs_bell")
        assert await bell.rings() == []
        await neighbour.execute("insert into reactor.jobs (job_type) values ('a')")
        assert "reactor_jobs" in await bell.rings()
        assert await connection.fetchval("select last_value from reactor.jobs_bell") > before
        await transaction.rollback()
        assert await bell.rings() == []


async def test_a_rolled_back_savepoint_does_not_silence_the_rest(database: str, connection: Connection) -> None:
    async with listening(database) as bell:
        async with connection.transaction():
            savepoint = connection.transaction()
            await savepoint.start()
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
            await savepoint.rollback()
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert await bell.rings() == ["reactor_jobs"]


async def test_a_storm_rings_seldom(database: str, connection: Connection) -> None:
    async with listening(database) as bell:
        await bell.rings()
        for _ in range(300):
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        await bell.all_arrived()
        assert 1 <= len(bell.heard) < 300


async def test_a_clock_that_was_set_back_does_not_silence_the_bell(database: str, connection: Connection) -> None:
    await connection.execute("select setval('reactor.jobs_bell', (extract(epoch from now()) * 1000)::bigint + 3600000)")
    async with listening(database) as bell:
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert "reactor_jobs" in await bell.rings()


@pytest.mark.parametrize("table", ["jobs", "steps"])
async def test_changed_is_kept_true_whoever_writes(connection: Connection, table: str) -> None:
    await connection.execute("insert into reactor.jobs (job_type) values ('a')")
    await connection.execute("insert into reactor.steps (job_id, name, position) values (1, 's', 1)")
    for statement in (
        f"select 1 from reactor.{table}",
        f"update reactor.{table} set state = 'completed'",
        f"update reactor.{table} set error = 'x', changed = '3'",
    ):
        async with connection.transaction():
            await connection.execute(statement)
            stamp = f"select changed = pg_current_xact_id() from reactor.{table}"
            assert await connection.fetchval(stamp) or statement.startswith("select")
        assert await connection.fetchval(f"select changed <> '3' from reactor.{table}")


async def test_the_snapshot_finds_a_late_commit_once_and_only_once(database: str, connection: Connection) -> None:
    """A transaction that began first and commits last is what sequence numbers lose."""
    news = (
        "select id, pg_current_snapshot()::text as cursor from reactor.jobs "
        "where changed >= pg_snapshot_xmin($1) and not pg_visible_in_snapshot(changed, $1)"
    )

    async def cursor() -> str:
        now: str = await connection.fetchval("select pg_current_snapshot()::text")
        return now

    async def since(snapshot: str) -> list[int]:
        return [r["id"] for r in await connection.fetch(news.replace("$1", f"'{snapshot}'::pg_snapshot"))]

    async with connect(database, name="late") as late:
        transaction = late.transaction()
        await transaction.start()
        early = await late.fetchval("insert into reactor.jobs (job_type) values ('a') returning id")
        quick = await connection.fetchval("insert into reactor.jobs (job_type) values ('a') returning id")
        seen = await cursor()
        assert await since(seen) == []
        await transaction.commit()
    assert await since(seen) == [early]
    assert await since(await cursor()) == []
    assert quick > early
