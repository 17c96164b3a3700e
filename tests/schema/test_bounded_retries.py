"""A retry of many jobs: a limited number in its own transaction, the rest in short ones after it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Failed
from reactor.queries.why import Code, why
from tests.schema.test_bounded_ends import AT_ONCE, MANY, chain, count, end, fan_out, ranges, resolve_all
from tests.support.until import until


async def retry(connection: Connection, *ids: int) -> list[int]:
    return [row["id"] for row in await connection.fetch(statements.RETRY, list(ids))]


async def retry_all(connection: Connection, batch: int = AT_ONCE) -> list[int]:
    """How many jobs each transaction released."""
    released = []
    pause = 0.0
    while pause == 0:
        row = await connection.fetchrow("select * from reactor.retry_more($1)", batch)
        assert row
        released.append(len(row["ids"] or ()))
        pause = row["next_in_seconds"]
    assert pause is None
    return released


async def begun(connection: Connection) -> int:
    found: int = await connection.fetchval("select count(*) from reactor.retries")
    return found


async def fail_jobs(connection: Connection, size: int, job_type: str = "work") -> list[int]:
    ids = [job.id for job in await submit_many(connection, [NewJob(job_type=job_type)] * size)]
    await connection.execute(
        "update reactor.jobs set state = 'failed', finished_at = clock_timestamp() where id = any ($1)", ids
    )
    return ids


async def states(connection: Connection, *ids: int) -> list[str]:
    rows = await connection.fetch("select state from reactor.jobs where id = any ($1) order by id", list(ids))
    return [row["state"] for row in rows]


async def test_a_small_retry_is_one_transaction(connection: Connection, worker: Worker) -> None:
    first = await fan_out(connection, AT_ONCE - 1)
    await end(connection, worker, first, Failed("x"))
    assert len(await retry(connection, first)) == AT_ONCE
    assert await states(connection, first) == ["pending"]
    assert await begun(connection) == 0


async def test_a_retry_starts_a_limited_number_of_named_jobs_and_the_rest_follows(connection: Connection) -> None:
    ids = await fail_jobs(connection, MANY)
    assert len(await retry(connection, *ids)) == AT_ONCE
    assert (await count(connection, "waiting"), await count(connection, "failed")) == (AT_ONCE, MANY - AT_ONCE)
    written = Counter(await retry_all(connection))
    assert (written[1000], written[500]) == (2, 1)
    assert await count(connection, "pending") == MANY
    assert await connection.fetchval("select count(*) from reactor.retry_parts") == 0


@pytest.mark.parametrize("make", [fan_out, chain])
async def test_dependants_are_restored_in_steps_and_none_runs_before_all_are(
    connection: Connection, worker: Worker, make: Callable[[Connection, int], Awaitable[int]]
) -> None:
    first = await make(connection, MANY)
    size = await connection.fetchval("select count(*) from reactor.jobs")
    await connection.execute(
        "update reactor.jobs set pipeline_id = p.id from (select gen_random_uuid() as id offset 0) p"
    )
    await end(connection, worker, first, Failed("x"))
    await resolve_all(connection)
    await retry(connection, first)
    pause: float | None = 0.0
    while pause == 0:
        assert await connection.fetchval("select state from reactor.pipelines") == "running"
        assert await count(connection, "cancelled") == 0 or await count(connection, "pending") == 0
        pause = await connection.fetchval("select next_in_seconds from reactor.retry_more($1)", 300)
    assert pause is None
    assert (await count(connection, "pending"), await count(connection, "waiting")) == (1, size - 1)
    assert await connection.fetch(statements.REPAIR_WAITING, 10) == []
    await end(connection, worker, first)


async def test_no_transaction_of_a_retry_writes_more_than_a_thousand_jobs(
    connection: Connection, worker: Worker
) -> None:
    await connection.execute(
        "create table public.written (xid bigint, n bigint);"
        "create function public.note() returns trigger language plpgsql security definer as"
        " 'begin insert into public.written select txid_current(), count(distinct id) from changed; return null; end';"
        "create trigger note after update on reactor.jobs referencing new table as changed"
        " for each statement execute function public.note()"
    )
    first = await fan_out(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    await resolve_all(connection)
    ids = await fail_jobs(connection, MANY)
    await connection.execute("delete from public.written")
    await retry(connection, first, *ids)
    await retry_all(connection)
    largest = await connection.fetchval(
        "select max(n) from (select xid, max(n) as n from public.written group by xid) w"
    )
    assert largest == AT_ONCE
    assert await connection.fetchval("select count(distinct xid) from public.written") >= 2 * (2 * MANY / AT_ONCE)
    assert await count(connection, "cancelled") == await count(connection, "failed") == 0


async def test_jobs_that_are_held_are_not_released_by_the_end_of_another(
    connection: Connection, worker: Worker
) -> None:
    """Each of the many needs one that failed, and one that ends while the retry goes on."""
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * (2 + MANY))]
        await connection.execute(
            "insert into reactor.dependencies select id, p from unnest($1::bigint[]) id, unnest($2::bigint[]) p",
            ids[2:],
            ids[:2],
        )
    await end(connection, worker, ids[0], Failed("x"))
    await resolve_all(connection)
    await retry(connection, ids[0])
    await end(connection, worker, ids[1])
    assert await count(connection, "pending") == 0
    await resolve_all(connection)
    assert await states(connection, *ids[:2]) == ["pending", "completed"]
    assert await count(connection, "waiting") == MANY
    await end(connection, worker, ids[0])
    await resolve_all(connection)
    assert await count(connection, "pending") == MANY


@pytest.mark.parametrize("needs", ["completed", "finished"])
async def test_dependencies_between_jobs_of_different_transactions_apply_again(
    connection: Connection, worker: Worker, needs: str
) -> None:
    """The job with the lowest id needs the one with the highest."""
    ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * (MANY - 2))]
    async with connection.transaction():
        first, last = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 2)]
        await connection.execute("update reactor.jobs set priority = 1 where id = any ($1)", ids)
        await connection.execute("insert into reactor.dependencies values ($1, $2, $3)", first, last, needs)
    await end(connection, worker, last)
    await end(connection, worker, first)
    await connection.execute("update reactor.jobs set state = 'failed' where id = any ($1)", ids)
    await retry(connection, *ids, first, last)
    await retry_all(connection)
    assert await states(connection, first, last) == ["waiting", "pending"]
    await end(connection, worker, last)
    assert await states(connection, first) == ["pending"]


async def test_what_is_left_of_a_retry_survives_a_crash_at_any_point(
    connection: Connection, worker: Worker, database: str
) -> None:
    """Each transaction is rolled back once, as a crash does, before it succeeds."""
    first = await fan_out(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    await resolve_all(connection)
    await retry(connection, first)
    pause = 0.0
    while pause == 0:
        async with connect(database, name="crashing") as crashing:
            transaction = crashing.transaction()
            await transaction.start()
            await crashing.fetch("select * from reactor.retry_more(700)")
            await transaction.rollback()
        pause = await connection.fetchval("select next_in_seconds from reactor.retry_more(700)")
    assert (await count(connection, "pending"), await count(connection, "waiting")) == (1, MANY)


async def test_pods_continue_a_retry_that_its_caller_left(connection: Connection, worker: Worker) -> None:
    ids = await fail_jobs(connection, AT_ONCE + 10, "other")
    await retry(connection, *ids)
    assert await claim(connection, worker, 1) == []
    assert await count(connection, "failed") == 0
    await resolve_all(connection)
    assert await count(connection, "pending") == AT_ONCE + 10


async def test_a_large_retry_wakes_a_pod_that_continues(connection: Connection, database: str) -> None:
    ids = await fail_jobs(connection, AT_ONCE + 10)
    heard = asyncio.Event()
    async with connect(database, name="pod") as pod:
        await pod.add_listener("reactor_jobs", lambda *_: heard.set())
        await retry(connection, *ids)
        await asyncio.wait_for(heard.wait(), 20)
        await pod.reset()


async def test_a_job_that_is_locked_is_put_off_and_the_others_are_started(
    connection: Connection, worker: Worker, database: str
) -> None:
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", ids[AT_ONCE + 3])
        await connection.execute("set lock_timeout = '5s'")
        await until(
            lambda: connection.fetchval("select next_in_seconds > 0 from reactor.retry_more(1000)"), within_seconds=20
        )
        await until(lambda: started_but_one(connection))
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.retry_more(1000)"))
    assert await count(connection, "pending") == MANY


async def started_but_one(connection: Connection) -> bool:
    await connection.fetch("select * from reactor.retry_more(1000)")
    return await count(connection, "failed") == 1


async def test_a_dependant_that_is_locked_is_restored_later(
    connection: Connection, worker: Worker, database: str
) -> None:
    first = await fan_out(connection, AT_ONCE + 10)
    await end(connection, worker, first, Failed("x"))
    await resolve_all(connection)
    await retry(connection, first)
    locked = first + AT_ONCE + 3
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for share", locked)
        await connection.execute("set lock_timeout = '5s'")
        assert await connection.fetchval("select next_in_seconds from reactor.retry_more(1000)") > 0
        assert await states(connection, first, locked - 1, locked, locked + 1) == [
            "waiting",
            "waiting",
            "cancelled",
            "waiting",
        ]
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.retry_more(1000)"))
    assert await states(connection, first, locked) == ["pending", "waiting"]


async def test_a_held_job_that_is_locked_is_released_later(
    connection: Connection, worker: Worker, database: str
) -> None:
    ids = await fail_jobs(connection, AT_ONCE + 1)
    await retry(connection, *ids)
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", ids[3])
        await until(lambda: released_but_one(connection))
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.retry_more(1000)"))
    assert await count(connection, "pending") == AT_ONCE + 1


async def released_but_one(connection: Connection) -> bool:
    await connection.fetch("select * from reactor.retry_more(1000)")
    return await count(connection, "pending") == AT_ONCE


async def test_a_transaction_does_not_wait_for_another_that_continues(connection: Connection, database: str) -> None:
    ids = await fail_jobs(connection, AT_ONCE + 10)
    await retry(connection, *ids)
    async with connect(database, name="other") as other, other.transaction():
        await other.fetch("select * from reactor.retry_more(5)")
        await connection.execute("set lock_timeout = '5s'")
        row = await connection.fetchrow("select * from reactor.retry_more(10)")
        assert row
        assert (row["ids"], row["next_in_seconds"] > 0) == (None, True)
    await retry_all(connection)
    assert await count(connection, "pending") == AT_ONCE + 10


async def test_jobs_that_are_cancelled_meanwhile_are_not_started(connection: Connection, worker: Worker) -> None:
    """One that is suspended, and one that was not started over yet."""
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    cancelled = await connection.fetch(statements.CANCEL, [ids[0], ids[-1]], "no")
    assert [row["id"] for row in cancelled] == [ids[0]]
    await retry_all(connection)
    assert await states(connection, ids[0], ids[-1]) == ["cancelled", "failed"]
    assert await count(connection, "pending") == MANY - 2


async def test_a_cancel_waits_for_a_transaction_that_is_starting_its_job(connection: Connection, database: str) -> None:
    """What that transaction leaves for later is seen by the cancel."""
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    async with connect(database, name="pod") as pod:
        transaction = pod.transaction()
        await transaction.start()
        await pod.fetch("select * from reactor.retry_more(10)")
        cancelling = asyncio.create_task(
            connection.fetch(statements.CANCEL, [ids[AT_ONCE + 1], ids[AT_ONCE + 500]], "no")
        )
        await until(lambda: pod.fetchval("select exists (select from pg_locks where not granted)"))
        await transaction.commit()
        assert [row["id"] for row in await cancelling] == [ids[AT_ONCE + 1]]
    await retry_all(connection)
    assert await states(connection, ids[AT_ONCE + 1], ids[AT_ONCE + 500]) == ["cancelled", "failed"]


async def test_a_cancelled_job_restores_no_more_dependants(connection: Connection, worker: Worker) -> None:
    first = await fan_out(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    await resolve_all(connection)
    await retry(connection, first)
    await connection.fetch(statements.CANCEL, [first], "no")
    pause: float | None = 0.0
    while pause == 0:
        pause = await connection.fetchval("select next_in_seconds from reactor.retry_more(1000)")
        assert await count(connection, "waiting") == 0
    assert await count(connection, "cancelled") == MANY + 1
    assert await begun(connection) == 0
    await retry(connection, first)
    await retry_all(connection)
    assert await count(connection, "waiting") == MANY


async def test_a_job_that_ran_again_meanwhile_is_not_started_a_second_time(
    connection: Connection, worker: Worker
) -> None:
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    await retry(connection, ids[-1])
    await end(connection, worker, ids[-1], Failed("again"))
    await retry_all(connection)
    assert await states(connection, ids[-1]) == ["failed"]
    assert await count(connection, "pending") == MANY - 1


async def test_a_retry_waits_for_no_job_that_is_about_to_end(
    connection: Connection, worker: Worker, database: str
) -> None:
    [made, failed] = await submit_many(connection, [NewJob(job_type="work")] * 2)
    await end(connection, worker, failed.id, Failed("x"))
    assert (job := await claim_one(connection, worker, made.id))
    async with connect(database, name="pod") as pod, pod.transaction():
        await settle(pod, [Ending(job.id, job.attempt_id, Failed("x"))])
        async with asyncio.timeout(20):
            assert await retry(connection, made.id, failed.id) == [failed.id]
    assert await retry(connection, made.id) == [made.id]


async def test_a_second_retry_of_the_same_jobs_starts_none_twice(connection: Connection, worker: Worker) -> None:
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    await retry(connection, *ids)
    assert await begun(connection) == 2
    await retry_all(connection)
    assert (await count(connection, "pending"), await begun(connection)) == (MANY, 0)


async def test_a_job_that_is_pruned_meanwhile_is_forgotten(connection: Connection) -> None:
    ids = await fail_jobs(connection, MANY)
    await retry(connection, *ids)
    pruned = await connection.fetchrow(statements.PRUNE, 0.0, ["failed"], 10_000, True, "{}", False, False)
    assert pruned
    assert pruned["jobs"] == MANY - AT_ONCE
    await retry_all(connection)
    assert await count(connection, "pending") == AT_ONCE


async def test_a_scope_that_is_taken_refuses_a_large_retry_at_its_beginning(connection: Connection) -> None:
    ids = await fail_jobs(connection, MANY)
    [last] = await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    await connection.execute("update reactor.jobs set state = 'failed' where id = $1", last.id)
    await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    with pytest.raises(asyncpg.UniqueViolationError, match=f"exclusive scope of job {last.id} is taken"):
        await retry(connection, *ids, last.id)
    assert await count(connection, "failed") == MANY + 1


async def test_a_job_whose_scope_is_taken_meanwhile_stays_as_it_is(connection: Connection) -> None:
    ids = await fail_jobs(connection, MANY)
    [last] = await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    await connection.execute("update reactor.jobs set state = 'failed' where id = $1", last.id)
    await retry(connection, *ids, last.id)
    await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    await retry_all(connection)
    assert await states(connection, last.id) == ["failed"]
    assert await count(connection, "pending") == MANY + 1


async def test_a_scope_that_is_taken_at_the_same_moment_puts_the_retry_off(
    connection: Connection, database: str
) -> None:
    ids = await fail_jobs(connection, MANY)
    [last] = await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    await connection.execute("update reactor.jobs set state = 'failed' where id = $1", last.id)
    await retry(connection, *ids, last.id)
    async with connect(database, name="producer") as producer:
        transaction = producer.transaction()
        await transaction.start()
        await submit_many(producer, [NewJob(job_type="work", scope="s", exclusive=True)])
        retrying = asyncio.create_task(connection.fetchrow("select * from reactor.retry_more(10000)"))
        await until(lambda: producer.fetchval("select exists (select from pg_locks where not granted)"))
        await transaction.commit()
        row = await retrying
    assert row
    assert (row["ids"], row["next_in_seconds"] > 0) == (None, True)
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.retry_more(1000)"))
    assert await states(connection, last.id) == ["failed"]


async def test_a_held_job_is_explained_and_no_bug_is_reported(connection: Connection) -> None:
    ids = await fail_jobs(connection, AT_ONCE + 1)
    await retry(connection, *ids)
    assert await connection.fetch(statements.REPAIR_WAITING, 10) == []
    [reason, *_] = (await why(connection, ids[0])).reasons
    assert reason.code == Code.RETRYING
    await connection.execute("delete from reactor.retries")
    assert len(await connection.fetch(statements.REPAIR_WAITING, 10)) == 10


async def test_a_retry_stops_what_was_left_of_the_end(connection: Connection, worker: Worker) -> None:
    first = await fan_out(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    await retry(connection, first)
    assert await ranges(connection) == 0
    await retry_all(connection)
    assert await count(connection, "waiting") == MANY
    await end(connection, worker, first)
    await resolve_all(connection)
    assert await count(connection, "pending") == MANY


async def test_a_retry_restores_what_is_being_cancelled_at_that_moment(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A chain whose cascade goes on in another transaction: the retry waits for it, and restores its jobs too."""
    first = await chain(connection, MANY)
    await end(connection, worker, first, Failed("x"))
    async with connect(database, name="pod") as pod:
        transaction = pod.transaction()
        await transaction.start()
        await pod.fetch("select * from reactor.resolve_more(700)")
        await retry(connection, first)
        retrying = asyncio.create_task(connection.fetch("select * from reactor.retry_more(1000)"))
        await until(lambda: pod.fetchval("select exists (select from pg_locks where not granted)"))
        await transaction.commit()
        await retrying
    await retry_all(connection)
    assert await ranges(connection) == 0
    assert (await count(connection, "pending"), await count(connection, "waiting")) == (1, MANY - 1)


async def test_a_job_with_very_many_dependencies_locks_none_of_them(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="other")] * 10_001)]
        [last] = await submit_many(connection, [NewJob(job_type="work")])
        await connection.execute(
            "insert into reactor.dependencies select $2, id from unnest($1::bigint[]) id", ids, last.id
        )
    await connection.execute("update reactor.jobs set state = 'failed' where id = $1", ids[0])
    await resolve_all(connection)
    assert await states(connection, last.id) == ["cancelled"]
    async with connect(database, name="other") as other, other.transaction():
        await other.execute("select from reactor.jobs where id = $1 for update", ids[7])
        await connection.execute("set lock_timeout = '5s'")
        assert await retry(connection, ids[0]) == [ids[0], last.id]
        await retry_all(connection)
    assert await states(connection, ids[0], last.id) == ["pending", "waiting"]
    assert await connection.fetchval("select waiting_on from reactor.jobs where id = $1", last.id) == 10_001


async def test_a_predecessor_that_ends_while_its_dependant_is_released_is_not_missed(
    connection: Connection, worker: Worker, database: str
) -> None:
    """One that is suspended needs one that is running, and both transactions write at the same moment."""
    for round_number in range(8):
        async with connection.transaction():
            running, failed, waits = [j.id for j in await submit_many(connection, [NewJob(job_type="work")] * 3)]
            await connection.execute(
                "insert into reactor.dependencies values ($1, $2), ($1, $3)", waits, running, failed
            )
        others = await fail_jobs(connection, AT_ONCE, "other")
        await end(connection, worker, failed, Failed("x"))
        assert (job := await claim_one(connection, worker, running))
        await retry(connection, *others, failed)
        async with connect(database, name="pod") as pod:
            outcome = Completed() if round_number % 2 else Failed("y")
            await asyncio.gather(
                retry_until_done(pod),
                settle(connection, [Ending(job.id, job.attempt_id, outcome)]),
            )
        await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.resolve_more(10)"))
        await end(connection, worker, failed)
        assert await states(connection, waits) == ["pending" if round_number % 2 else "cancelled"]
        await connection.execute("update reactor.jobs set state = 'completed' where state = 'pending'")


async def retry_until_done(connection: Connection) -> None:
    await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.retry_more(100)"))
