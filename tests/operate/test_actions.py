"""Operators' actions: one transaction with their audit entry, refused with a reason, repeated after conflicts."""

import asyncio
import json
import sys
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from reactor.database import statements
from reactor.database import transact as transact_module
from reactor.database.connection import Connection, connect
from reactor.errors import JobUnknown, LockedElsewhere, NotRecoverable, ScopeTaken
from reactor.job import Job, JobState
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker, register_worker, retire_worker
from reactor.lifecycle.settle import settle
from reactor.operate import (
    Operator,
    cancel,
    cancel_pipeline,
    drain,
    limit,
    pause,
    recover,
    resume,
    retry,
    retry_pipeline,
)
from reactor.operate import actions as actions_module
from reactor.outcome import Completed, Ending, Failed
from reactor.pod.sweeper import resolve_more
from tests.support.jobs import Row, insert
from tests.support.sessions import waits_for_a_lock
from tests.support.until import until

ANNE = Operator("anne@host", "cli")


async def run(connection: Connection, worker: Worker, job_id: int) -> Job:
    job = await claim_one(connection, worker, job_id)
    assert job
    return job


async def fail(connection: Connection, worker: Worker, job_id: int) -> None:
    job = await run(connection, worker, job_id)
    assert await settle(connection, [Ending(job.id, job.attempt_id, Failed("no"))])


async def audit(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch("select who, what, target, came_from, details from reactor.audit order by id")
    return [dict(row) | {"details": json.loads(row["details"])} for row in rows]


async def test_cancel_reports_each_job_and_is_audited(connection: Connection, worker: Worker, row: Row) -> None:
    pending, running, failed = [await insert(connection) for _ in range(3)]
    await run(connection, worker, running)
    await fail(connection, worker, failed)
    done = await cancel(connection, [failed, running, pending, 999, pending], "wrong file", ANNE)
    assert done.jobs == {pending: JobState.PENDING, running: JobState.RUNNING}
    assert done.unfit == {failed: JobState.FAILED}
    assert done.unknown == (999,)
    assert (await row(running))["error"] == "wrong file"
    [note] = await audit(connection)
    assert (note["who"], note["what"], note["came_from"]) == ("anne@host", "cancel", "cli")
    assert note["target"] == f"{pending} and 3 more"
    assert note["details"] == {
        "ids": [pending, running, failed, 999],
        "reason": "wrong file",
        "cancelled": {str(pending): "pending", str(running): "running"},
        "unfit": {str(failed): "failed"},
        "unknown": [999],
    }


async def test_a_cancel_of_unknown_jobs_is_audited_and_one_without_ids_is_not(connection: Connection) -> None:
    await cancel(connection, [7], "why not", ANNE)
    await cancel(connection, [], "why not", ANNE)
    await retry(connection, [], ANNE)
    [note] = await audit(connection)
    assert (note["target"], note["details"]["unknown"]) == ("7", [7])


async def test_an_action_is_rolled_back_if_its_audit_entry_fails(connection: Connection, row: Row) -> None:
    job_id = await insert(connection)
    await connection.execute("alter table reactor.audit add constraint full_up check (what <> 'cancel')")
    with pytest.raises(asyncpg.CheckViolationError):
        await cancel(connection, [job_id], "x", ANNE)
    assert (await row(job_id))["state"] == "pending"


async def test_jobs_are_cancelled_in_batches_of_a_thousand(connection: Connection) -> None:
    ids = [
        record["id"]
        for record in await connection.fetch(
            "insert into reactor.jobs (job_type, scope) select 'work', 's' || n from generate_series(1, 2500) n "
            "returning id"
        )
    ]
    done = await cancel(connection, ids, "all of them", ANNE)
    assert len(done.jobs) == 2500
    transactions = await connection.fetch(
        "select count(*) as n from reactor.jobs where state = 'cancelled' group by changed_xid order by 1"
    )
    assert [record["n"] for record in transactions] == [500, 1000, 1000]
    assert [len(note["details"]["ids"]) for note in await audit(connection)] == [1000, 1000, 500]


async def test_characters_that_the_database_can_not_store_are_replaced_in_reasons(
    connection: Connection, row: Row
) -> None:
    job_id = await insert(connection)
    await cancel(connection, [job_id], "a\0b\ud800", Operator("\udcff", "cli"))
    assert (await row(job_id))["error"] == "a\ufffdb?"
    assert (await audit(connection))[0]["who"] == "?"


async def test_a_retry_is_repeated_after_a_deadlock(database: str, connection: Connection) -> None:
    """Two transactions lock the same two rows in opposite order; the server aborts one of them, which is repeated.

    Ours is aborted: a session checks for deadlocks once, deadlock_timeout after it started to wait, and ours has the
    shorter timeout. A lock on a row between the two keeps it waiting until the other transaction waits too.
    """
    first, between, second = [await insert(connection) for _ in range(3)]
    await connection.execute("update reactor.jobs set state = 'failed', finished_at = clock_timestamp()")
    lock = "select from reactor.jobs where id = $1 for update"
    await connection.execute("set deadlock_timeout = '10ms'")
    async with (
        connect(database, name="other") as other,
        connect(database, name="gate") as gate,
        connect(database, name="onlooker") as onlooker,
    ):
        await other.execute("set deadlock_timeout = '60s'")
        async with other.transaction():
            await other.execute(lock, second)
            async with gate.transaction():
                await gate.execute(lock, between)
                retrying = asyncio.create_task(retry(connection, [first, between, second], ANNE))
                await until(lambda: waits_for_a_lock(onlooker, "test"))
                locking = asyncio.create_task(other.execute(lock, first))
                await until(lambda: waits_for_a_lock(onlooker, "other"))
            await locking
        done = await retrying
    assert set(done.jobs) == {first, between, second}
    assert len(await audit(connection)) == 1


async def test_a_lock_held_by_another_transaction_is_reported(
    database: str, connection: Connection, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transact_module, "LOCK_SECONDS", 0.05)
    job_id = await insert(connection)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", job_id)
        with pytest.raises(LockedElsewhere, match="Nothing was changed"):
            await cancel(connection, [job_id], "x", ANNE)
    assert (await row(job_id))["state"] == "pending"


async def test_actions_work_with_a_stricter_default_isolation(connection: Connection) -> None:
    job_id = await insert(connection)
    await connection.execute("set default_transaction_isolation = 'repeatable read'")
    assert (await cancel(connection, [job_id], "x", ANNE)).jobs


async def test_a_retry_restarts_finished_jobs_and_restores_their_dependants(
    connection: Connection, worker: Worker, row: Row
) -> None:
    async with connection.transaction():
        first, second = await insert(connection), await insert(connection)
        await connection.execute("insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", second, first)
    unfinished = await insert(connection)
    await fail(connection, worker, first)
    assert (await row(second))["state"] == "cancelled"
    done = await retry(connection, [first, unfinished, 999], ANNE)
    assert done.jobs == {first: JobState.PENDING, second: JobState.WAITING}
    assert (done.unfit, done.unknown) == ({unfinished: JobState.PENDING}, (999,))
    [note] = await audit(connection)
    assert note["what"] == "retry"
    assert note["details"]["started"] == {str(first): "pending", str(second): "waiting"}


async def test_a_retry_into_a_taken_exclusive_scope_names_its_holder_and_changes_nothing(
    connection: Connection, worker: Worker, row: Row
) -> None:
    old = await insert(connection, scope="table=a", exclusive=True)
    other = await insert(connection)
    await fail(connection, worker, old)
    await fail(connection, worker, other)
    holder = await insert(connection, scope="table=a", exclusive=True)
    with pytest.raises(ScopeTaken, match=f"job {holder} holds its scope 'table=a'") as caught:
        await retry(connection, [old, other], ANNE)
    assert (caught.value.job_id, caught.value.holder_id) == (old, holder)
    assert ((await row(old))["state"], (await row(other))["state"]) == ("failed", "failed")
    [note] = await audit(connection)
    assert f"job {holder}" in note["details"]["refused"]


async def test_two_jobs_of_one_exclusive_scope_are_not_retried_together(connection: Connection, worker: Worker) -> None:
    first = await insert(connection, scope="table=a", exclusive=True)
    await fail(connection, worker, first)
    second = await insert(connection, scope="table=a", exclusive=True)
    await fail(connection, worker, second)
    with pytest.raises(ScopeTaken) as caught:
        await retry(connection, [first, second], ANNE)
    assert (caught.value.job_id, caught.value.holder_id) == (second, first)


async def test_a_retry_restores_the_first_dependant_of_an_exclusive_scope(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """They were inserted after their dependency had failed, so they never blocked each other."""
    first = await insert(connection, scope="table=a", exclusive=True)
    await fail(connection, worker, first)

    async def dependant(scope: str) -> int:
        async with connection.transaction():
            job_id = await insert(connection, scope=scope, exclusive=True)
            await connection.execute("insert into reactor.dependencies values ($1, $2)", job_id, first)
        assert (await row(job_id))["state"] == "cancelled"
        return job_id

    rival = await dependant("table=a")
    second, third = await dependant("table=b"), await dependant("table=b")
    done = await retry(connection, [first], ANNE)
    assert done.jobs == {first: JobState.PENDING, second: JobState.WAITING}
    assert ((await row(rival))["state"], (await row(third))["state"]) == ("cancelled", "cancelled")


async def many(connection: Connection, state: str = "failed") -> tuple[UUID, list[int]]:
    """A pipeline of 2,500 jobs that ended."""
    pipeline_id = uuid4()
    records = await connection.fetch(
        "insert into reactor.jobs (job_type, pipeline_id) select 'work', $1 from generate_series(1, 2500) returning id",
        pipeline_id,
    )
    ids = [record["id"] for record in records]
    await connection.execute("update reactor.jobs set state = $2, finished_at = now() where id = any ($1)", ids, state)
    return pipeline_id, ids


async def test_many_jobs_are_retried_in_transactions_of_a_thousand_with_one_audit_entry(connection: Connection) -> None:
    pipeline_id, ids = await many(connection)
    done = await retry_pipeline(connection, pipeline_id, ANNE)
    assert done.jobs == dict.fromkeys(ids, JobState.PENDING)
    assert (done.unfit, done.unknown) == ({}, ())
    transactions = await connection.fetch(
        "select count(*) as n from reactor.jobs where state = 'pending' group by changed_xid order by 1"
    )
    assert [record["n"] for record in transactions] == [500, 1000, 1000]
    [note] = await audit(connection)
    assert (note["what"], note["details"]["ids"], note["details"]["later"]) == ("retry", ids, 1500)
    assert note["details"]["unfit"] == {}


async def test_a_large_retry_reports_jobs_that_it_can_not_start(connection: Connection) -> None:
    _, ids = await many(connection)
    unfinished = await insert(connection)
    done = await retry(connection, [*ids, unfinished, 99999], ANNE)
    assert (len(done.jobs), done.unfit, done.unknown) == (2500, {unfinished: JobState.PENDING}, (99999,))
    [note] = await audit(connection)
    assert (note["details"]["unfit"], note["details"]["unknown"]) == ({str(unfinished): "pending"}, [99999])


async def test_a_large_retry_lists_all_restored_dependants_though_a_pod_sweeps(
    database: str, connection: Connection, worker: Worker
) -> None:
    """Pods leave it to the operator, as long as it goes on."""
    async with connection.transaction():
        first = await insert(connection)
        records = await connection.fetch(
            "insert into reactor.jobs (job_type) select 'work' from generate_series(1, 3000) returning id"
        )
        ids = [record["id"] for record in records]
        await connection.execute(
            "insert into reactor.dependencies select id, $2 from unnest($1::bigint[]) id", ids, first
        )
    await fail(connection, worker, first)
    await resolve_more(connection)
    async with connect(database, name="pod") as pod:
        retrying = asyncio.create_task(retry(connection, [first], ANNE))
        while not retrying.done():
            await pod.fetch(statements.RESOLVE_MORE, 1000)
            await asyncio.sleep(0)
        done = await retrying
    assert done.jobs == {first: JobState.PENDING} | dict.fromkeys(ids, JobState.WAITING)


async def test_a_retry_whose_operator_is_killed_is_finished_by_a_pod(database: str, connection: Connection) -> None:
    """The command stops in its second transaction, at a row that the test has locked, and is killed there."""
    pipeline_id, ids = await many(connection)
    code = (
        "import sys, asyncio, uuid\n"
        "from reactor.database.connection import connect\n"
        "from reactor.operate import Operator, retry_pipeline\n"
        "async def main():\n"
        "    async with connect(sys.argv[1], name='operator') as connection:\n"
        "        await retry_pipeline(connection, uuid.UUID(sys.argv[2]), Operator('anne', 'cli'))\n"
        "asyncio.run(main())"
    )
    async with connect(database, name="other") as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from reactor.jobs where id = $1 for update", ids[-1])
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, database, str(pipeline_id))
        try:
            await until(lambda: connection.fetchval("select exists (select from reactor.retry_parts where tries > 0)"))
        finally:
            process.kill()
            await process.wait()
        await transaction.rollback()
    await until(
        lambda: connection.fetchval(
            "select count(*) = 0 from pg_stat_activity"
            " where application_name = 'operator' and datname = current_database()"
        )
    )
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'pending'") < 2500
    assert await resolve_more(connection) is not None, "for a while pods leave the rest to the operator"
    await connection.execute("update reactor.retries set not_before = now()")
    assert await resolve_more(connection) is None
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'pending'") == 2500
    assert len(await audit(connection)) == 1


async def test_a_retry_leaves_jobs_that_are_locked_for_long_to_the_pods(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions_module, "LOCK_SECONDS", 0.2)
    _, ids = await many(connection)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", ids[-1])
        done = await retry(connection, ids, ANNE)
    assert done.unfit == {ids[-1]: JobState.FAILED}
    await connection.execute("update reactor.retries set not_before = now()")
    await until(lambda: _is_done(connection))
    assert await connection.fetchval("select count(*) from reactor.jobs where state = 'pending'") == 2500


async def _is_done(connection: Connection) -> bool:
    return await resolve_more(connection) is None


async def test_a_cancel_of_the_pipeline_stops_a_retry_that_goes_on(connection: Connection) -> None:
    pipeline_id, ids = await many(connection)
    await connection.fetch(statements.RETRY, ids)
    done = await cancel_pipeline(connection, pipeline_id, "no", ANNE)
    assert len(done.jobs) == 1000
    assert await resolve_more(connection) is None
    rows = await connection.fetch("select state, count(*) as n from reactor.jobs group by state")
    assert {row["state"]: row["n"] for row in rows} == {"cancelled": 1000, "failed": 1500}


async def test_a_dead_workers_job_is_recovered_with_a_fresh_quota(
    connection: Connection, worker: Worker, row: Row
) -> None:
    """P7: only a job whose worker is dead; fresh quota, runnable now."""
    job_id = await insert(connection, max_attempts=1)
    await run(connection, worker, job_id)
    await retire_worker(connection, worker.id)
    await recover(connection, job_id, ANNE)
    after = await row(job_id)
    assert (after["state"], after["attempts"], after["run_after"], after["worker_id"]) == ("pending", 0, None, None)
    successor = Worker("pod-2", {"work": None})
    await register_worker(connection, successor, 600)
    assert [job.id for job in await claim(connection, successor, 1)] == [job_id]
    [note] = await audit(connection)
    assert (note["what"], note["target"], note["details"]) == ("recover", str(job_id), {"recovered": True})


async def test_a_live_workers_job_is_not_recovered(connection: Connection, worker: Worker, row: Row) -> None:
    """P7: 409 otherwise. The refusal is audited too."""
    job_id = await insert(connection)
    await run(connection, worker, job_id)
    before = await row(job_id)
    with pytest.raises(NotRecoverable, match="its worker on pod-1 is alive"):
        await recover(connection, job_id, ANNE)
    assert await row(job_id) == before
    [note] = await audit(connection)
    assert "alive" in note["details"]["refused"]


async def test_a_job_that_is_not_running_is_not_recovered(connection: Connection) -> None:
    """P7: 409 otherwise."""
    job_id = await insert(connection)
    with pytest.raises(NotRecoverable, match="it is pending, not running"):
        await recover(connection, job_id, ANNE)
    with pytest.raises(JobUnknown, match="There is no job 999"):
        await recover(connection, 999, ANNE)
    assert len(await audit(connection)) == 2


async def test_recovering_a_job_that_a_pod_is_recovering_is_refused(
    database: str, connection: Connection, worker: Worker
) -> None:
    job_id = await insert(connection)
    await run(connection, worker, job_id)
    await retire_worker(connection, worker.id)
    async with connect(database, name="sweeper") as sweeper, sweeper.transaction():
        await sweeper.execute("select from reactor.jobs where id = $1 for no key update", job_id)
        with pytest.raises(NotRecoverable, match="right now"):
            await recover(connection, job_id, ANNE)


async def test_jobs_of_a_paused_queue_are_not_claimed_until_it_is_resumed(
    connection: Connection, worker: Worker
) -> None:
    await insert(connection, queue="imports")
    assert not await pause(connection, "imports", ANNE)
    assert await pause(connection, "imports", ANNE)
    assert await claim(connection, worker, 1) == []
    assert await resume(connection, "imports", ANNE)
    assert not await resume(connection, "imports", ANNE)
    assert len(await claim(connection, worker, 1)) == 1
    notes = await audit(connection)
    assert [(note["what"], note["target"]) for note in notes] == [("pause", "imports")] * 2 + [
        ("resume", "imports")
    ] * 2
    assert [note["details"]["was_paused"] for note in notes] == [False, True, True, False]


async def test_a_queue_limit_survives_a_pause_and_can_be_removed(connection: Connection, worker: Worker) -> None:
    for _ in range(2):
        await insert(connection, queue="imports")
    assert await limit(connection, "imports", 1, ANNE) is None
    await pause(connection, "imports", ANNE)
    await resume(connection, "imports", ANNE)
    assert len(await claim(connection, worker, 2)) == 1
    assert await limit(connection, "imports", None, ANNE) == 1
    assert len(await claim(connection, worker, 2)) == 1
    assert (await audit(connection))[-1]["details"] == {"max_running": None, "was": 1}


async def test_while_draining_nothing_is_claimed_and_running_jobs_finish(
    connection: Connection, worker: Worker
) -> None:
    running, waiting = await insert(connection), await insert(connection)
    job = await run(connection, worker, running)
    assert not await drain(connection, True, ANNE)
    assert await claim(connection, worker, 1) == []
    assert await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
    assert await drain(connection, False, ANNE)
    assert [job.id for job in await claim(connection, worker, 1)] == [waiting]
    assert [note["details"] for note in await audit(connection)] == [
        {"on": True, "was": False},
        {"on": False, "was": True},
    ]


async def test_a_worker_role_may_operate(connection: Connection) -> None:
    job_id = await insert(connection)
    await connection.execute("set role reactor_worker")
    await cancel(connection, [job_id], "x", ANNE)
    await retry(connection, [job_id], ANNE)
    await pause(connection, "q", ANNE)
    await limit(connection, "q", 1, ANNE)
    await drain(connection, True, ANNE)
    with pytest.raises(NotRecoverable):
        await recover(connection, job_id, ANNE)
    await connection.execute("reset role")
    assert len(await audit(connection)) == 6
