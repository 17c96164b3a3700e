"""The end of a job with many dependants: a limited number in its own transaction, the rest in short ones after it."""

import asyncio

import asyncpg
import pytest

from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Failed, Outcome
from reactor.queries.why import Code, why
from tests.support.until import until

AT_ONCE = 1000
MANY = 2500


async def fan_out(connection: Connection, size: int, needs: str = "completed") -> int:
    """A job with this number of dependants; returns its id, and theirs follow."""
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * (size + 1))]
        await connection.execute(
            "insert into reactor.dependencies select id, $2, $3 from unnest($1::bigint[]) id", ids[1:], ids[0], needs
        )
    return ids[0]


async def chain(connection: Connection, size: int) -> int:
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * size)]
        await connection.execute(
            "insert into reactor.dependencies (job_id, depends_on) select id, id - 1 from unnest($1::bigint[]) id",
            ids[1:],
        )
    return ids[0]


async def end(connection: Connection, worker: Worker, job_id: int, outcome: Outcome | None = None) -> None:
    job = await claim_one(connection, worker, job_id)
    assert job, f"job {job_id} can't be claimed"
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome or Completed())])


async def count(connection: Connection, state: str) -> int:
    found: int = await connection.fetchval("select count(*) from reactor.jobs where state = $1", state)
    return found


async def ranges(connection: Connection) -> int:
    found: int = await connection.fetchval("select count(*) from reactor.unresolved")
    return found


async def resolve_all(connection: Connection, batch: int = AT_ONCE) -> list[int]:
    """How many each transaction handled."""
    handled = []
    pause = 0.0
    while pause == 0:
        row = await connection.fetchrow("select * from reactor.resolve_more($1)", batch)
        assert row
        handled.append(row["handled"])
        pause = row["next_in_seconds"]
    assert pause is None
    return handled


@pytest.mark.parametrize(("outcome", "state"), [(Completed(), "pending"), (Failed("x"), "cancelled")])
async def test_an_end_handles_a_limited_number_of_dependants_and_the_rest_follows(
    connection: Connection, worker: Worker, outcome: Outcome, state: str
) -> None:
    first = await fan_out(connection, MANY)
    await end(connection, worker, first, outcome)
    assert await count(connection, state) == AT_ONCE
    assert await count(connection, "waiting") == MANY - AT_ONCE
    assert await resolve_all(connection) == [1000, 500]
    assert await count(connection, state) == MANY
    assert await ranges(connection) == 0


async def test_a_long_chain_is_cancelled_in_steps(connection: Connection, worker: Worker) -> None:
    first = await chain(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    assert await count(connection, "cancelled") == AT_ONCE
    assert await ranges(connection) == 1
    assert await resolve_all(connection) == [1000, 499]
    assert await count(connection, "cancelled") == MANY - 1
    error = await connection.fetchval("select error from reactor.jobs where id = $1", first + MANY - 1)
    assert error == f"Job {first + MANY - 2} (work), which this job depends on, was cancelled."


async def test_the_cost_of_a_cascade_grows_with_its_length(connection: Connection) -> None:
    """Counted in rows that are read: a chain of twice the length takes twice as many, not four times."""

    async def rows_read(size: int) -> int:
        first = await chain(connection, size)
        async with connection.transaction():
            reads = (
                "select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_user_tables where schemaname = 'reactor'"
            )
            before = await connection.fetchval(reads)
            await connection.execute("update reactor.jobs set state = 'failed' where id = $1", first)
            read: int = await connection.fetchval(reads) - before
        assert await count(connection, "waiting") == 0
        return read

    await rows_read(10)
    short, long = await rows_read(200), await rows_read(800)
    assert long < 5 * short


async def test_a_cascade_that_widens_is_cancelled_completely(connection: Connection, worker: Worker) -> None:
    """40 dependants with 40 dependants each, every third of which only needs an end and runs."""
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * (1 + 40 + 1600))]
        edges = [(ids[1 + n], ids[0], "completed") for n in range(40)]
        edges += [(ids[41 + n], ids[1 + n // 40], "completed" if n % 3 else "finished") for n in range(1600)]
        await connection.executemany("insert into reactor.dependencies values ($1, $2, $3)", edges)
    await end(connection, worker, ids[0], Failed("x"))
    await resolve_all(connection, batch=70)
    assert await count(connection, "waiting") == 0
    assert await count(connection, "pending") == len([n for n in range(1600) if n % 3 == 0])
    assert await ranges(connection) == 0


async def test_a_diamond_that_is_resolved_in_parts_is_released_once(connection: Connection, worker: Worker) -> None:
    """Every dependant needs two jobs, and each of them resolves its edges in several transactions."""
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * (2 + MANY))]
        await connection.execute(
            "insert into reactor.dependencies select id, p from unnest($1::bigint[]) id, unnest($2::bigint[]) p",
            ids[2:],
            ids[:2],
        )
    await end(connection, worker, ids[0])
    await end(connection, worker, ids[1])
    assert await count(connection, "pending") == AT_ONCE
    await resolve_all(connection)
    assert await count(connection, "pending") == MANY
    assert (
        await connection.fetchval("select count(*) from reactor.jobs where waiting_on <> 0 and state <> 'waiting'") == 0
    )


async def test_what_is_left_survives_a_crash(connection: Connection, worker: Worker, database: str) -> None:
    first = await fan_out(connection, MANY)
    await end(connection, worker, first)
    async with connect(database, name="crashing") as crashing:
        transaction = crashing.transaction()
        await transaction.start()
        await crashing.fetch("select * from reactor.resolve_more(700)")
        await transaction.rollback()
    assert await count(connection, "pending") == AT_ONCE
    assert sum(await resolve_all(connection)) == MANY - AT_ONCE
    assert await count(connection, "pending") == MANY


async def test_a_dependant_that_is_locked_is_left_for_later(
    connection: Connection, worker: Worker, database: str
) -> None:
    first = await fan_out(connection, AT_ONCE + 10)
    await end(connection, worker, first)
    locked = first + AT_ONCE + 3
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", locked)
        await connection.execute("set lock_timeout = '5s'")
        assert await connection.fetchval(statements.RESOLVE_MORE, AT_ONCE) > 0
        waiting = await connection.fetch("select id from reactor.jobs where state = 'waiting'")
        assert [row["id"] for row in waiting] == [locked]
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.resolve_more(10)"))
    assert await count(connection, "waiting") == 0


async def test_a_cascade_does_not_wait_for_a_locked_job_below_the_first_level(
    connection: Connection, worker: Worker, database: str
) -> None:
    first = await chain(connection, 5)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for share", first + 2)
        await connection.execute("set lock_timeout = '5s'")
        await end(connection, worker, first, Failed("x"))
        assert await count(connection, "cancelled") == 1
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.resolve_more(10)"))
    assert await count(connection, "cancelled") == 4


async def test_a_transaction_does_not_wait_for_another_that_does_the_rest(
    connection: Connection, worker: Worker, database: str
) -> None:
    await end(connection, worker, await fan_out(connection, AT_ONCE + 50), Failed("x"))
    async with connect(database, name="other") as other, other.transaction():
        assert await other.fetchval("select handled from reactor.resolve_more(10)") == 10
        await connection.execute("set lock_timeout = '5s'")
        row = await connection.fetchrow("select * from reactor.resolve_more(10)")
        assert row
        assert (row["handled"], row["next_in_seconds"] > 0) == (0, True)
    assert sum(await resolve_all(connection)) == 40
    assert await count(connection, "cancelled") == AT_ONCE + 50


async def test_dependants_of_a_large_end_are_explained_and_no_bug_is_reported(
    connection: Connection, worker: Worker
) -> None:
    first = await fan_out(connection, AT_ONCE + 1)
    await end(connection, worker, first, Failed("x"))
    last = first + AT_ONCE + 1
    assert await connection.fetch(statements.REPAIR_WAITING, 10) == []
    [reason, *_] = (await why(connection, last)).reasons
    assert reason.code == Code.DEPENDENCIES
    assert reason.message == (
        f"Waiting for job {first} (failed). Job {first} has many dependants; the pods are releasing or cancelling them."
    )
    pipeline = await connection.fetchval("select state from reactor.pipelines where waiting > 0")
    assert pipeline == "running"
    await connection.execute("delete from reactor.unresolved")
    found = await connection.fetch(statements.REPAIR_WAITING, 10)
    assert [row["id"] for row in found] == [last]
    assert await count(connection, "waiting") == 0


async def test_a_large_end_wakes_a_pod_that_continues(connection: Connection, worker: Worker, database: str) -> None:
    first = await fan_out(connection, MANY)
    heard = asyncio.Event()
    job = await claim_one(connection, worker, first)
    assert job
    async with connect(database, name="pod") as pod:
        await pod.add_listener("reactor_jobs", lambda *_: heard.set())
        # Failed: nothing becomes runnable, so that only what is left can be the reason.
        await settle(connection, [Ending(job.id, job.attempt_id, Failed("x"))])
        await asyncio.wait_for(heard.wait(), 20)
        await pod.reset()


async def test_new_dependants_of_an_ended_job_are_resolved_in_parts_too(connection: Connection, worker: Worker) -> None:
    [needed] = await submit_many(connection, [NewJob(job_type="work")])
    await end(connection, worker, needed.id, Failed("x"))
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * MANY)]
        await connection.execute(
            "insert into reactor.dependencies select id, $2 from unnest($1::bigint[]) id", ids, needed.id
        )
    assert await count(connection, "cancelled") == AT_ONCE
    await resolve_all(connection)
    assert await count(connection, "cancelled") == MANY


async def test_a_settle_does_not_wait_for_the_rest_of_a_producers_commit(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A deferred trigger of the test stands for all that a large commit does besides connecting: it waits for us."""
    await connection.execute(
        "create function public.hold() returns trigger language plpgsql as "
        "'begin perform pg_advisory_xact_lock(4711); return null; end'; "
        "create constraint trigger hold after insert on reactor.dependencies deferrable initially deferred "
        "for each row execute function public.hold()"
    )
    [needed] = await submit_many(connection, [NewJob(job_type="work")])
    job = await claim_one(connection, worker, needed.id)
    assert job
    await connection.execute("select pg_advisory_lock(4711)")
    async with connect(database, name="producer") as producer:

        async def insert_dependants() -> list[int]:
            async with producer.transaction():
                ids = [made.id for made in await submit_many(producer, [NewJob(job_type="other")] * 10)]
                await producer.execute(
                    "insert into reactor.dependencies select id, $2 from unnest($1::bigint[]) id", ids, needed.id
                )
            return ids

        inserting = asyncio.create_task(insert_dependants())
        await until(lambda: connection.fetchval("select exists (select from pg_locks where not granted)"))
        await connection.execute("set lock_timeout = '5s'")
        assert await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
        await connection.execute("select pg_advisory_unlock(4711)")
        ids = await inserting
    states = await connection.fetch("select distinct state from reactor.jobs where id = any ($1)", ids)
    assert [row["state"] for row in states] == ["pending"]


async def test_a_transaction_with_too_many_dependencies_is_refused(connection: Connection) -> None:
    with pytest.raises(asyncpg.ProgramLimitExceededError, match="can't insert 100489 dependencies") as caught:
        async with connection.transaction():
            ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 634)]
            await connection.execute(
                "insert into reactor.dependencies select j, p from unnest($1::bigint[]) j, unnest($2::bigint[]) p",
                ids[317:],
                ids[:317],
            )
    assert "several transactions" in (caught.value.hint or "")
