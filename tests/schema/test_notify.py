"""Notifications and `changed`: every writer of a row wakes the listeners, and streams can resume exactly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
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


async def pretend_that_it_was_just_now(connection: Connection, doorbell: str = "jobs") -> None:
    """For a second, the last notification of the channel is recent."""
    await connection.execute(
        f"select setval('reactor.{doorbell}_notified_at', (extract(epoch from clock_timestamp()) * 1000)::bigint + 900)"
    )


async def last_notified_by(connection: Connection) -> int:
    xid: int = await connection.fetchval("select last_value from reactor.jobs_notified_by")
    return xid


INSERT = "insert into reactor.jobs (job_type) values ('a')"
NOTIFY_EARLY = f"begin; {INSERT}; set constraints all immediate"
# What leaves a doorbell that rang, and no notification.
UNHEARD = {
    "a rolled back transaction": f"{NOTIFY_EARLY}; rollback",
    "a rolled back savepoint": f"begin; savepoint s; {INSERT}; set constraints all immediate; rollback to s; commit",
    "a function that caught an error": (
        f"do $$ begin {INSERT}; set constraints all immediate; raise exception 'no'; exception when others then end $$"
    ),
}


@pytest.mark.parametrize("unheard", UNHEARD)
async def test_a_notification_that_was_rolled_back_suppresses_no_other(
    database: str, connection: Connection, unheard: str
) -> None:
    async with listening(database) as listener:
        before = await last_notified_by(connection)
        await connection.execute(UNHEARD[unheard])
        assert await listener.notified() == []
        assert await last_notified_by(connection) > before
        await pretend_that_it_was_just_now(connection)
        await connection.execute(INSERT)
        assert await listener.notified() == ["reactor_jobs"]


async def test_a_refused_pipeline_suppresses_no_notification(database: str, connection: Connection) -> None:
    async with listening(database) as listener:
        before = await last_notified_by(connection)
        transaction = connection.transaction()
        await transaction.start()
        await submit_many(connection, [NewJob(job_type="a") for _ in range(2)])
        await connection.execute("insert into reactor.dependencies values (1, 2), (2, 1)")
        with pytest.raises(asyncpg.CheckViolationError):
            await transaction.commit()
        await connection.execute(INSERT)
        assert await listener.notified() == ["reactor_jobs"]
        assert await last_notified_by(connection) > before


async def test_a_producers_own_deferred_constraint_fails_before_anything_notifies(
    database: str, connection: Connection
) -> None:
    await connection.execute(
        "create table public.orders (job_id bigint references reactor.jobs deferrable initially deferred)"
    )
    async with listening(database) as listener:
        before = await last_notified_by(connection)
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await connection.execute(f"begin; {INSERT}; insert into public.orders values (99); commit")
        await connection.execute("rollback")
        assert await last_notified_by(connection) == before
        await connection.execute(INSERT)
        assert await listener.notified() == ["reactor_jobs"]


WRITES_THAT_NOTIFY = {
    "insert into reactor.queues (name, paused) values ('q', false)": "jobs",
    "update reactor.settings set draining = false": "jobs",
    "update reactor.jobs set priority = 1": "jobs",
    "update reactor.jobs set progress = 0.5 where false": "feed",
    "insert into reactor.steps (job_id, name, position) values (1, 's', 1)": "feed",
}


@pytest.mark.parametrize("statement", WRITES_THAT_NOTIFY)
async def test_an_open_transaction_suppresses_no_notification(
    database: str, connection: Connection, statement: str
) -> None:
    """A handler's ctx.transaction() is one."""
    doorbell = WRITES_THAT_NOTIFY[statement]
    last = f"select last_value from reactor.{doorbell}_notified_by"
    await connection.execute(INSERT)
    async with listening(database) as listener, connect(database, name="open") as other:
        await listener.notified()
        before = await connection.fetchval(last)
        async with other.transaction():
            await other.execute(statement)
            assert await connection.fetchval(last) == before
        assert f"reactor_{doorbell}" in await listener.notified()
        assert await connection.fetchval(last) > before


async def test_after_a_rolled_back_notification_an_unfinished_one_suppresses_no_other(
    database: str, connection: Connection
) -> None:
    """So a producer that notifies and rolls back in a loop silences nobody, at whatever moment the others commit."""
    async with listening(database) as listener, connect(database, name="rude") as rude:
        for _ in range(3):
            await rude.execute(NOTIFY_EARLY)
            before = await last_notified_by(connection)
            await rude.execute("rollback")
            await pretend_that_it_was_just_now(connection)
            await rude.execute(NOTIFY_EARLY)
            assert await last_notified_by(connection) > before
            await connection.execute(INSERT)
            assert await listener.notified() == ["reactor_jobs"]
            await rude.execute("rollback")


async def test_a_notification_about_to_be_sent_suppresses_others(database: str, connection: Connection) -> None:
    """Otherwise all commits of a storm would notify, and wait for each other."""
    async with listening(database) as listener, connect(database, name="slow") as slow:
        await slow.execute(NOTIFY_EARLY)
        await pretend_that_it_was_just_now(connection)
        await connection.execute(INSERT)
        assert await listener.notified() == []
        await slow.execute("commit")
        assert await listener.notified() == ["reactor_jobs"]


async def test_rows_after_set_constraints_notify_too(database: str, connection: Connection) -> None:
    async with listening(database) as listener:
        async with connection.transaction():
            await connection.execute(INSERT)
            await connection.execute("set constraints all immediate")
            first = await last_notified_by(connection)
            await connection.execute("select setval('reactor.jobs_notified_by', 3)")
            await connection.execute("select setval('reactor.jobs_notified_at', 3)")
            await connection.execute(INSERT)
            assert await last_notified_by(connection) == first
        assert await listener.notified() == ["reactor_jobs"]


async def test_a_producer_can_not_forge_that_it_has_notified(database: str, connection: Connection) -> None:
    async with listening(database) as listener:
        async with connection.transaction():
            for name in ("inserting", "queued", "notified"):
                await connection.execute(f"select set_config('reactor.{name}', txid_current()::text, true)")
            await connection.execute("set local reactor.notify_now = on")
            await connection.execute(INSERT)
        assert await listener.notified() == ["reactor_jobs"]


async def test_the_rows_of_a_transaction_queue_one_notification(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type) select 'a' from generate_series(1, 1000)")
    await connection.execute("select pg_stat_force_next_flush()")
    written = "select n_tup_ins from pg_stat_user_tables where relid = 'reactor.wakeups'::regclass"
    assert await connection.fetchval(written) == 3, "one to queue it, two to learn the transaction"
    assert await connection.fetchval("select count(*) from reactor.wakeups") == 0


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


async def test_a_notification_by_an_unknown_transaction_does_not_count(database: str, connection: Connection) -> None:
    """After a failover, the last notification may be by a transaction that this server has not started yet."""
    async with listening(database) as listener:
        await connection.execute("select setval('reactor.jobs_notified_by', txid_current() + 1000000)")
        await pretend_that_it_was_just_now(connection)
        await connection.execute(INSERT)
        assert await listener.notified() == ["reactor_jobs"]


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
