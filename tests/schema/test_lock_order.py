"""Transactions that meet at the same rows take turns: each test holds a row, lets two of them queue for it, and then
releases it, so that they continue in the order that would deadlock if their lock orders differed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from reactor.children import Children
from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import abandon, settle
from reactor.outcome import Completed, Ending, Errored, Failed, Outcome
from tests.support.until import until


async def waiting_sessions(connection: Connection) -> int:
    found: int = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return found


async def in_turn(
    database: str, held: int, first: Callable[[Connection], Awaitable[object]], second: Callable[..., Awaitable[object]]
) -> None:
    """Both wait for the row `held`, one after the other, and continue when it is released."""
    async with AsyncExitStack() as stack:
        holder, left, right = [await stack.enter_async_context(connect(database, name=n)) for n in ("h", "l", "r")]
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("select from reactor.jobs where id = $1 for update", held)
        tasks = []
        for number, (connection, run) in enumerate([(left, first), (right, second)], start=1):
            tasks.append(asyncio.ensure_future(run(connection)))
            await until(lambda number=number: _at_least(holder, number))
        await transaction.rollback()
        await asyncio.gather(*tasks)


async def _at_least(connection: Connection, number: int) -> bool:
    return await waiting_sessions(connection) >= number


@pytest.mark.parametrize("outcome", [Completed(), Failed("x")])
async def test_a_cancel_locks_its_jobs_and_their_dependants_in_the_order_of_a_settle(
    connection: Connection, worker: Worker, database: str, outcome: Outcome
) -> None:
    """`needed` is older than its dependant for the settle, which locks both, but younger by id."""
    async with connection.transaction():
        running, dependant, needed = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 3)]
        await connection.executemany(
            "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)",
            [(dependant, running), (needed, running), (dependant, needed)],
        )
    job = await claim_one(connection, worker, running)
    assert job
    ending = Ending(job.id, job.attempt_id, outcome)
    await in_turn(
        database,
        dependant,
        lambda pod: settle(pod, [ending]),
        lambda operator: operator.fetch(statements.CANCEL, [needed], "not needed"),
    )
    left = await connection.fetch("select state from reactor.jobs where id = any ($1)", [dependant, needed])
    assert [row["state"] for row in left] == ["cancelled", "cancelled"]


async def test_a_cancel_and_the_release_of_an_abandoned_job_take_turns(
    connection: Connection, worker: Worker, database: str
) -> None:
    [made] = await submit_many(connection, [NewJob(job_type="work", scope="s")])
    job = await claim_one(connection, worker, made.id)
    assert job
    assert await abandon(connection, job.id, job.attempt_id, Errored("too slow", retry_after_seconds=600))
    await in_turn(
        database,
        job.id,
        lambda pod: pod.fetch(statements.RELEASE_STOPPED, worker.id, [job.id]),
        lambda operator: operator.fetch(statements.CANCEL, [job.id], "not needed"),
    )
    row = await connection.fetchrow("select state, worker_id from reactor.jobs where id = $1", job.id)
    assert row
    assert tuple(row) == ("cancelled", None)


async def test_a_cancel_waits_for_a_job_that_was_claimed_meanwhile_without_locks_on_waiting_jobs(
    connection: Connection, worker: Worker, database: str
) -> None:
    """The settle of that job may be about to release one of them."""
    async with connection.transaction():
        first, needed, dependant, late = [
            job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 4)
        ]
        await connection.execute("insert into reactor.dependencies values ($1, $2)", dependant, needed)
    assert await claim_one(connection, worker, first)
    async with AsyncExitStack() as stack:
        holder, operator, pod = [await stack.enter_async_context(connect(database, name=n)) for n in ("h", "o", "p")]
        lock = "select from reactor.jobs where id = $1 for no key update"
        held = holder.transaction()
        await held.start()
        await holder.execute(lock, first)
        cancel = asyncio.ensure_future(operator.fetch(statements.CANCEL, [first, dependant, late], "not needed"))
        await until(lambda: _at_least(connection, 1))
        assert await claim_one(connection, worker, late)
        async with pod.transaction():
            await pod.execute(lock, late)
            await held.rollback()
            waits_for_pod = "select $1 = any (pg_blocking_pids($2))"
            pids = pod.get_server_pid(), operator.get_server_pid()
            await until(lambda: connection.fetchval(waits_for_pod, *pids))
            await pod.execute(lock, dependant)
        assert {row["id"] for row in await cancel} == {first, dependant, late}


async def test_a_cancel_that_waits_for_a_job_holds_no_other(connection: Connection, database: str) -> None:
    """The job may start meanwhile. Another cancel would then lock it first, and the others next."""
    first, held = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 2)]
    async with AsyncExitStack() as stack:
        holder, operator = [await stack.enter_async_context(connect(database, name=n)) for n in ("h", "o")]
        async with holder.transaction():
            await holder.execute("select from reactor.jobs where id = $1 for no key update", held)
            cancel = asyncio.ensure_future(operator.fetch(statements.CANCEL, [first, held], "not needed"))
            await until(lambda: _at_least(connection, 1))
            await connection.execute("select from reactor.jobs where id = $1 for no key update nowait", first)
        assert {row["id"] for row in await cancel} == {first, held}


async def test_a_cancel_that_finds_a_job_locked_again_and_again_waits_for_all(
    connection: Connection, database: str
) -> None:
    """Or it would never end where others always have one of them."""
    ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 20)]
    async with AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(connect(database, name="holder")) for _ in ids]
        operator = await stack.enter_async_context(connect(database, name="operator"))
        held = [holder.transaction() for holder in holders]
        for transaction, holder, job_id in zip(held, holders, ids, strict=True):
            await transaction.start()
            await holder.execute("select from reactor.jobs where id = $1 for no key update", job_id)
        cancel = asyncio.ensure_future(operator.fetch(statements.CANCEL, ids, "not needed"))
        waits_for = "select $1 = any (pg_blocking_pids($2))"
        for transaction, holder in zip(held, holders, strict=True):
            pids = holder.get_server_pid(), operator.get_server_pid()
            await until(lambda pids=pids: connection.fetchval(waits_for, *pids))
            await transaction.rollback()
        assert {row["id"] for row in await cancel} == set(ids)


async def test_the_end_of_a_batch_with_children_locks_all_its_jobs_by_id(
    connection: Connection, worker: Worker, database: str
) -> None:
    """Only the younger job has children, which are created before the jobs are settled."""
    made = await submit_many(connection, [NewJob(job_type="work")] * 2)
    jobs = [job for one in made if (job := await claim_one(connection, worker, one.id))]
    older, younger = sorted(job.id for job in jobs)
    children = {younger: Children(['{"job_type": "work"}'])}
    endings = [Ending(job.id, job.attempt_id, Completed(), children.get(job.id)) for job in jobs]
    await in_turn(
        database,
        younger,
        lambda pod: settle(pod, endings),
        lambda operator: operator.fetch(statements.CANCEL, [older, younger], "not needed"),
    )
    rows = await connection.fetch("select state, children from reactor.jobs where id = any ($1)", [older, younger])
    assert sorted(map(tuple, rows)) == [("completed", 0), ("completed", 1)]


async def test_two_retries_that_lock_the_same_jobs_as_named_ones_and_as_predecessors_take_turns(
    connection: Connection, worker: Worker, database: str
) -> None:
    """The older job depends on the younger one."""
    async with connection.transaction():
        older, younger, failed = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 3)]
        await connection.executemany(
            "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)",
            [(older, younger), (older, failed)],
        )
    job = await claim_one(connection, worker, failed)
    assert job
    await settle(connection, [Ending(job.id, job.attempt_id, Failed("x"))])
    await connection.fetch(statements.CANCEL, [younger], "not needed")
    await in_turn(
        database,
        older,
        lambda operator: operator.fetch(statements.RETRY, [older, younger]),
        lambda operator: operator.fetch(statements.RETRY, [older]),
    )
    left = await connection.fetch("select id, state from reactor.jobs order by id")
    assert [row["state"] for row in left] == ["cancelled", "pending", "failed"]
