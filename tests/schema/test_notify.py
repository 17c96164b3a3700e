"""Notifications and `changed`: every writer of a row wakes the listeners, and streams can resume exactly."""

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
        self.received: list[str] = []
        self._connection = connection

    def receive(self, *notification: Any) -> None:
        self.received.append(notification[2])

    async def all_arrived(self) -> None:
        await self._connection.execute("select 1")

    async def notified(self) -> list[str]:
        """The channels notified since the last call. A round trip ensures that everything sent has arrived."""
        await asyncio.sleep(0.03)  # longer than further notifications are suppressed
        await self.all_arrived()
        received, self.received = self.received, []
        return sorted(set(received))


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Listener]:
    async with connect(url, name="listener") as connection:
        listener = Listener(connection)
        for channel in ("reactor_jobs", "reactor_feed"):
            await connection.add_listener(channel, listener.receive)
        yield listener
        for channel in ("reactor_jobs", "reactor_feed"):
            await connection.remove_listener(channel, listener.receive)


async def test_new_and_ready_jobs_notify_workers_and_every_change_notifies_the_feed(
    database: str, connection: Connection
) -> None:
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    async with listening(database) as listener:
        new, both, feed = ["reactor_jobs"], ["reactor_feed", "reactor_jobs"], ["reactor_feed"]
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert await listener.notified() == new
        await submit(connection, "a", scope="s")
        assert await listener.notified() == new
        await submit_many(connection, [NewJob(job_type="a", scope="s") for _ in range(100)])
        assert await listener.notified() == new
        [first, second] = await claim(connection, worker, 10)
        assert await listener.notified() == feed
        await connection.fetch(statements.REPORT_PROGRESS, [first.id], [first.attempt_id], [0.5], ["half"], None)
        assert await listener.notified() == feed
        await settle(connection, [Ending(first.id, first.attempt_id, Completed())])
        assert await listener.notified() == feed
        await settle(connection, [Ending(second.id, second.attempt_id, Completed())])
        assert await listener.notified() == both, "the next of the scope"
        [third] = await claim(connection, worker, 10)
        assert await listener.notified() == feed
        await settle(connection, [Ending(third.id, third.attempt_id, Errored("no", 3600))])
        assert await listener.notified() == both, "a retry, and the next of the scope"
        await connection.execute("update reactor.jobs set run_after = now() where run_after is not null")
        assert await listener.notified() == both
        await connection.fetch(statements.PROMOTE_DUE, 10)
        assert await listener.notified() == both
        await connection.execute("insert into reactor.jobs (job_type, run_after) values ('a', now() + interval '1 h')")
        assert await listener.notified() == new, "so that the promoter can set its alarm"
        await register_worker(connection, Worker("other", {}), 600)
        assert await listener.notified() == []
        await connection.execute("insert into reactor.queues (name, paused) values ('q', false)")
        assert await listener.notified() == ["reactor_jobs"], "a queue was opened"
        await connection.execute("update reactor.settings set draining = false")
        assert await listener.notified() == ["reactor_jobs"], "draining ended"


async def test_a_released_dependant_notifies(database: str, connection: Connection) -> None:
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    async with connection.transaction():
        await submit_many(connection, [NewJob(job_type="a") for _ in range(2)])
        await connection.execute("insert into reactor.dependencies values (2, 1)")
    assert (job := await claim_one(connection, worker, 1))
    async with listening(database) as listener:
        await listener.notified()
        await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        assert await listener.notified() == ["reactor_feed", "reactor_jobs"]


async def test_a_freed_scope_notifies_also_for_a_job_that_was_never_parked(
    database: str, connection: Connection
) -> None:
    """A claim may have skipped it while the settle held the scope's lock."""
    worker = Worker("pod", {"a": 3})
    await register_worker(connection, worker, 600)
    await submit(connection, "a", scope="s")
    [job] = await claim(connection, worker, 10)
    await submit(connection, "a", scope="s")
    async with listening(database) as listener:
        await listener.notified()
        await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        assert "reactor_jobs" in await listener.notified()


async def test_notifications_are_sent_at_commit_only(database: str, connection: Connection) -> None:
    """A transaction that notified early and stayed open would suppress the notifications of others."""
    async with listening(database) as listener, connect(database, name="neighbour") as neighbour:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        before = await connection.fetchval("select last_value from reactor.jobs_notified_at")
        assert await listener.notified() == []
        await neighbour.execute("insert into reactor.jobs (job_type) values ('a')")
        assert "reactor_jobs" in await listener.notified()
        assert await connection.fetchval("select last_value from reactor.jobs_notified_at") > before
        await transaction.rollback()
        assert await listener.notified() == []


async def test_a_rolled_back_savepoint_does_not_suppress_notifications(database: str, connection: Connection) -> None:
    async with listening(database) as listener:
        async with connection.transaction():
            savepoint = connection.transaction()
            await savepoint.start()
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
            await savepoint.rollback()
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert await listener.notified() == ["reactor_jobs"]


async def test_many_inserts_send_few_notifications(database: str, connection: Connection) -> None:
    async with listening(database) as listener:
        await listener.notified()
        for _ in range(300):
            await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        await listener.all_arrived()
        assert 1 <= len(listener.received) < 300


async def test_a_clock_that_was_set_back_does_not_suppress_notifications(database: str, connection: Connection) -> None:
    await connection.execute(
        "select setval('reactor.jobs_notified_at', (extract(epoch from now()) * 1000)::bigint + 3600000)"
    )
    async with listening(database) as listener:
        await connection.execute("insert into reactor.jobs (job_type) values ('a')")
        assert "reactor_jobs" in await listener.notified()


@pytest.mark.parametrize("table", ["jobs", "steps"])
async def test_changed_is_maintained_for_every_writer(connection: Connection, table: str) -> None:
    await connection.execute("insert into reactor.jobs (job_type) values ('a')")
    await connection.execute("insert into reactor.steps (job_id, name, position) values (1, 's', 1)")
    for statement in (
        f"select 1 from reactor.{table}",
        f"update reactor.{table} set state = 'completed'",
        f"update reactor.{table} set error = 'x', changed_xid = '3'",
    ):
        async with connection.transaction():
            await connection.execute(statement)
            stamp = f"select changed_xid = txid_current() from reactor.{table}"
            assert await connection.fetchval(stamp) or statement.startswith("select")
        assert await connection.fetchval(f"select changed_xid <> '3' from reactor.{table}")


async def test_the_snapshot_finds_a_late_commit_once_and_only_once(database: str, connection: Connection) -> None:
    """Sequence numbers would lose a transaction that started first and commits last."""
    news = (
        "select id, txid_current_snapshot()::text as cursor from reactor.jobs "
        "where changed_xid >= txid_snapshot_xmin($1) and not txid_visible_in_snapshot(changed_xid, $1)"
    )

    async def cursor() -> str:
        now: str = await connection.fetchval("select txid_current_snapshot()::text")
        return now

    async def since(snapshot: str) -> list[int]:
        return [r["id"] for r in await connection.fetch(news.replace("$1", f"'{snapshot}'::txid_snapshot"))]

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
