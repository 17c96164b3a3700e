"""DAGs in plain SQL: the database makes jobs ready when their dependencies are met, and cancels them otherwise."""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from reactor.client.submit import NewJob, submit_many
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.claim import claim, claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending, Failed, Outcome, Partial
from tests.support.until import until

RACES = int(os.environ.get("REACTOR_TEST_RACES", "250"))
TYPES = {"work": 1}


async def dag(connection: Connection, edges: str, needs: str = "completed") -> dict[str, int]:
    """Jobs by name from "b<a c<a d<b d<c" (b depends on a, …), in one transaction."""
    pairs = [edge.split("<") for edge in edges.split()]
    names = sorted({name for pair in pairs for name in pair})
    async with connection.transaction():
        made = await submit_many(connection, [NewJob(job_type="work") for _ in names])
        ids = dict(zip(names, (job.id for job in made), strict=True))
        await connection.executemany(
            "insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)",
            [(ids[job], ids[needed], needs) for job, needed in pairs],
        )
    return ids


async def end(connection: Connection, worker: Worker, job_id: int, outcome: Outcome | None = None) -> None:
    job = await claim_one(connection, worker, job_id)
    assert job, f"job {job_id} can't be claimed"
    assert await settle(connection, [Ending(job.id, job.attempt_id, outcome or Completed())])


async def states(connection: Connection, ids: dict[str, int]) -> dict[str, str]:
    rows = {r["id"]: r["state"] for r in await connection.fetch("select id, state from reactor.jobs")}
    return {name: rows[job_id] for name, job_id in ids.items()}


async def test_a_dag_in_plain_sql_runs_in_order(connection: Connection, worker: Worker) -> None:
    await connection.execute(
        """
        begin;
        insert into reactor.jobs (job_type) values ('work'), ('work'), ('work'), ('work');
        insert into reactor.dependencies (job_id, depends_on) values (2, 1), (3, 1), (4, 2), (4, 3);
        commit;
        """
    )
    order = []
    while batch := await claim(connection, worker, 10):
        order.append([job.id for job in batch])
        await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in batch])
    assert order == [[1], [2, 3], [4]]


async def test_a_fan_in_starts_when_its_last_dependency_has_ended(connection: Connection, worker: Worker) -> None:
    ids = await dag(connection, "d<a d<b d<c")
    for name in "ab":
        await end(connection, worker, ids[name])
        assert (await states(connection, ids))["d"] == "waiting"
    await end(connection, worker, ids["c"])
    assert (await states(connection, ids))["d"] == "pending"


@pytest.mark.parametrize(("outcome", "words"), [(Failed("x"), "failed"), (Partial(), "completed only in part")])
async def test_a_failed_or_partial_dependency_cancels_its_dependants(
    connection: Connection, worker: Worker, outcome: Outcome, words: str
) -> None:
    ids = await dag(connection, "b<a c<b d<c e<d d<x")
    await end(connection, worker, ids["a"], outcome)
    assert await states(connection, ids) == {
        "a": "failed" if isinstance(outcome, Failed) else "partial",
        "b": "cancelled",
        "c": "cancelled",
        "d": "cancelled",
        "e": "cancelled",
        "x": "pending",
    }
    errors = [
        r["error"]
        for r in await connection.fetch("select error from reactor.jobs where state = 'cancelled' order by id")
    ]
    assert errors[0] == f"Job {ids['a']} (work), which this job depends on, {words}."
    assert errors[1] == f"Job {ids['b']} (work), which this job depends on, was cancelled."


async def test_a_finished_dependency_is_met_by_any_end(connection: Connection, worker: Worker) -> None:
    ids = await dag(connection, "b<a", needs="finished")
    await end(connection, worker, ids["a"], Failed("x"))
    assert (await states(connection, ids))["b"] == "pending"


async def test_a_cancelled_job_meets_a_finished_dependency(connection: Connection, worker: Worker) -> None:
    """Clean-up after a broken chain: a fails, b is cancelled, c runs after any end of b."""
    async with connection.transaction():
        await connection.execute("insert into reactor.jobs (job_type) values ('work'), ('work'), ('work')")
        await connection.execute("insert into reactor.dependencies values (2, 1, 'completed'), (3, 2, 'finished')")
    await end(connection, worker, 1, Failed("x"))
    assert await states(connection, {"a": 1, "b": 2, "c": 3}) == {"a": "failed", "b": "cancelled", "c": "pending"}


async def test_dependencies_that_ended_before_the_insert_count(connection: Connection, worker: Worker) -> None:
    done, failed = [j.id for j in await submit_many(connection, [NewJob(job_type="work") for _ in range(2)])]
    await end(connection, worker, done)
    await end(connection, worker, failed, Failed("x"))
    made = {}
    for name, needed in {"after done": done, "after failed": failed}.items():
        async with connection.transaction():
            [job] = await submit_many(connection, [NewJob(job_type="work")])
            await connection.execute("insert into reactor.dependencies values ($1, $2)", job.id, needed)
            made[name] = job.id
    assert await states(connection, made) == {"after done": "pending", "after failed": "cancelled"}


async def test_a_retry_restores_dependants_that_its_failure_cancelled(connection: Connection, worker: Worker) -> None:
    ids = await dag(connection, "b<a c<b")
    await end(connection, worker, ids["a"], Failed("x"))
    brought = {r["id"]: r["state"] for r in await connection.fetch(statements.RETRY, [ids["a"]])}
    assert brought == {ids["a"]: "pending", ids["b"]: "waiting", ids["c"]: "waiting"}
    for name in "abc":
        await end(connection, worker, ids[name])
    assert set((await states(connection, ids)).values()) == {"completed"}


async def test_a_retry_does_not_restore_dependants_that_an_operator_cancelled(
    connection: Connection, worker: Worker
) -> None:
    ids = await dag(connection, "b<a c<a")
    await connection.fetch(statements.CANCEL, [ids["c"]], "not needed")
    await end(connection, worker, ids["a"], Failed("x"))
    await connection.fetch(statements.RETRY, [ids["a"]])
    assert await states(connection, ids) == {"a": "pending", "b": "waiting", "c": "cancelled"}


async def test_a_retry_of_one_of_two_failures_leaves_the_dependant_cancelled(
    connection: Connection, worker: Worker
) -> None:
    ids = await dag(connection, "c<a c<b")
    await end(connection, worker, ids["a"], Failed("x"))
    await end(connection, worker, ids["b"], Failed("y"))
    await connection.fetch(statements.RETRY, [ids["a"]])
    assert await states(connection, ids) == {"a": "pending", "b": "failed", "c": "cancelled"}
    await connection.fetch(statements.RETRY, [ids["b"]])
    for name in "abc":
        await end(connection, worker, ids[name])


async def test_two_dependencies_that_end_at_once_release_the_dependant_once(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A thousand times in `make chaos`. Each sees the other as running; exactly one makes the dependant pending."""
    await connection.execute(
        "create table public.releases (id bigint); grant insert on public.releases to public; "
        "create function public.note() returns trigger language plpgsql as "
        "'begin insert into public.releases values (new.id); return null; end'; "
        "create trigger note after update on reactor.jobs for each row "
        "when (old.state = 'waiting' and new.state = 'pending') execute function public.note()"
    )
    async with AsyncExitStack() as stack:
        left, right = [await stack.enter_async_context(connect(database, name=f"pod {n}")) for n in range(2)]
        for _ in range(RACES):
            ids = await dag(connection, "c<a c<b")
            jobs = await claim(connection, worker, 2)
            await asyncio.gather(
                *(
                    settle(c, [Ending(j.id, j.attempt_id, Completed())])
                    for c, j in zip([left, right], jobs, strict=True)
                )
            )
            assert (await states(connection, ids))["c"] == "pending"
            await connection.execute("update reactor.jobs set state = 'completed' where id = $1", ids["c"])
    assert await connection.fetchval("select count(*) from public.releases") == RACES
    assert await connection.fetchval("select count(distinct id) from public.releases") == RACES


async def test_settling_batches_with_crossing_dependants_never_deadlocks(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with AsyncExitStack() as stack:
        pods = [await stack.enter_async_context(connect(database, name=f"pod {n}")) for n in range(4)]
        for round_number in range(15):
            async with connection.transaction():
                above = [j.id for j in await submit_many(connection, [NewJob(job_type="work") for _ in range(40)])]
                below = [j.id for j in await submit_many(connection, [NewJob(job_type="work") for _ in range(40)])]
                edges = [(b, a) for n, b in enumerate(below) for a in (above[n], above[-1 - n], above[(n * 7) % 40])]
                await connection.executemany(
                    "insert into reactor.dependencies values ($1, $2) on conflict do nothing", edges
                )
            jobs = await claim(connection, worker, 40)
            outcome = Failed("x") if round_number % 3 == 2 else Completed()
            batches = [[Ending(j.id, j.attempt_id, outcome) for j in jobs[n::4]] for n in range(4)]
            written = await asyncio.gather(*(settle(c, b) for c, b in zip(pods, batches, strict=True)))
            assert sum(map(len, written)) == 40
            left = await connection.fetch("select distinct state from reactor.jobs where id = any($1)", below)
            assert [r["state"] for r in left] == ["cancelled" if round_number % 3 == 2 else "pending"]
            await connection.execute("update reactor.jobs set state = 'completed' where id = any($1)", below)


async def test_a_dependency_inserted_while_its_predecessor_settles_is_never_missed(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with AsyncExitStack() as stack:
        pod, producer = [await stack.enter_async_context(connect(database, name=f"{n}")) for n in ("pod", "producer")]

        async def insert_dependant(needed: int) -> int:
            async with producer.transaction():
                [job] = await submit_many(producer, [NewJob(job_type="other")])
                await producer.execute("insert into reactor.dependencies values ($1, $2)", job.id, needed)
            return job.id

        for _ in range(200):
            [needed] = await submit_many(connection, [NewJob(job_type="work")])
            assert (job := await claim_one(connection, worker, needed.id))
            dependant, _ = await asyncio.gather(
                insert_dependant(needed.id), settle(pod, [Ending(job.id, job.attempt_id, Completed())])
            )
            assert (await states(connection, {"it": dependant}))["it"] == "pending"


async def test_a_settle_waits_for_a_producer_that_inserts_a_dependant(
    connection: Connection, worker: Worker, database: str
) -> None:
    """The other order of the race above, forced by checking constraints before the commit."""
    [needed] = await submit_many(connection, [NewJob(job_type="work")])
    assert (job := await claim_one(connection, worker, needed.id))
    async with connect(database, name="producer") as producer:
        transaction = producer.transaction()
        await transaction.start()
        [dependant] = await submit_many(producer, [NewJob(job_type="other")])
        await producer.execute("insert into reactor.dependencies values ($1, $2)", dependant.id, needed.id)
        await producer.execute("set constraints all immediate")
        settling = asyncio.create_task(settle(connection, [Ending(job.id, job.attempt_id, Completed())]))
        await until(lambda: producer.fetchval("select exists (select from pg_locks where not granted)"))
        await transaction.commit()
        assert await settling
    assert (await states(connection, {"it": dependant.id}))["it"] == "pending"


async def test_an_open_producer_transaction_delays_no_other_job(
    connection: Connection, worker: Worker, database: str
) -> None:
    [needed, other] = await submit_many(connection, [NewJob(job_type="work") for _ in range(2)])
    async with connect(database, name="producer") as producer, producer.transaction():
        [dependant] = await submit_many(producer, [NewJob(job_type="work")])
        await producer.execute("insert into reactor.dependencies values ($1, $2)", dependant.id, needed.id)
        jobs = await claim(connection, worker, 10)
        assert {job.id for job in jobs} == {needed.id, other.id}
        written = await settle(connection, [Ending(job.id, job.attempt_id, Completed()) for job in jobs])
        assert len(written) == 2
    assert [job.id for job in await claim(connection, worker, 10)] == [dependant.id]


async def test_edges_after_constraints_were_set_immediate_count_too(connection: Connection) -> None:
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work") for _ in range(3)])]
        await connection.execute("set constraints all immediate")
        await connection.execute("insert into reactor.dependencies values ($1, $2)", ids[1], ids[0])
        await connection.execute("insert into reactor.dependencies values ($1, $2)", ids[2], ids[1])
    assert list((await states(connection, dict(zip("abc", ids, strict=True)))).values()) == [
        "pending",
        "waiting",
        "waiting",
    ]


async def test_a_retry_concurrent_with_another_dependencys_end_loses_no_dependant(
    connection: Connection, worker: Worker, database: str
) -> None:
    """c depends on a, which failed and is retried, and on b, which ends at that moment."""
    async with connect(database, name="operator") as operator:
        for round_number in range(150):
            ids = await dag(connection, "c<a c<b")
            await end(connection, worker, ids["a"], Failed("x"))
            assert (job := await claim_one(connection, worker, ids["b"]))
            outcome = Failed("y") if round_number % 2 else Completed()
            await asyncio.gather(
                operator.fetch(statements.RETRY, [ids["a"]]),
                settle(connection, [Ending(job.id, job.attempt_id, outcome)]),
            )
            # The retry leaves to the pods what the end of b has locked at that moment.
            await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.resolve_more(10)"))
            await end(connection, worker, ids["a"])
            await until(lambda: connection.fetchval("select next_in_seconds is null from reactor.resolve_more(10)"))
            assert (await states(connection, ids))["c"] == ("cancelled" if round_number % 2 else "pending")
            await connection.execute("update reactor.jobs set state = 'completed' where state = 'pending'")
    assert await connection.fetch(statements.REPAIR_WAITING, 10) == []


async def test_jobs_of_a_chain_that_are_retried_together_run_in_order_again(
    connection: Connection, worker: Worker
) -> None:
    ids = await dag(connection, "b<a c<b")
    for name in "abc":
        await end(connection, worker, ids[name])
    await connection.fetch(statements.RETRY, [ids["a"], ids["c"], ids["b"]])
    assert await states(connection, ids) == {"a": "pending", "b": "waiting", "c": "waiting"}
    for name in "abc":
        await end(connection, worker, ids[name])


async def test_jobs_can_not_be_ended_in_a_snapshot_that_hides_their_dependants(
    connection: Connection, worker: Worker
) -> None:
    [made] = await submit_many(connection, [NewJob(job_type="work")])
    assert (job := await claim_one(connection, worker, made.id))
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="repeatable read") as caught:
        async with connection.transaction(isolation="repeatable_read"):
            await settle(connection, [Ending(job.id, job.attempt_id, Completed())])
    assert "READ COMMITTED" in (caught.value.hint or "")
    async with connection.transaction(isolation="repeatable_read"):
        await submit_many(connection, [NewJob(job_type="work", idempotency_key="k") for _ in range(2)])


@pytest.mark.parametrize(
    ("edges", "complaint"),
    [
        ("(1, 1)", "job 1 can't depend on itself"),
        ("(1, 2), (2, 1)", "these jobs depend on each other: 1, 2"),
        ("(2, 1), (3, 2), (1, 3)", "these jobs depend on each other: 1, 2, 3"),
        ("(2, 99)", "job 99 does not exist"),
        ("(99, 1)", "job 99 does not exist"),
    ],
)
async def test_an_invalid_dag_is_refused(connection: Connection, edges: str, complaint: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match=complaint) as caught:
        async with connection.transaction():
            await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b'), ('c')")
            await connection.execute(f"insert into reactor.dependencies (job_id, depends_on) values {edges}")
    assert caught.value.hint


async def test_a_cycle_closed_by_a_later_statement_is_refused(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="depend on each other: 1, 2, 3"):
        async with connection.transaction():
            await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b'), ('c'), ('d')")
            for edge in ("(1, 3)", "(4, 3)", "(2, 1)", "(3, 2)"):
                await connection.execute(f"insert into reactor.dependencies (job_id, depends_on) values {edge}")


async def test_a_cycle_closed_after_constraints_were_set_immediate_is_refused(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="depend on each other"):
        async with connection.transaction():
            await connection.execute("set constraints all immediate")
            await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b')")
            await connection.execute("insert into reactor.dependencies values (1, 2)")
            await connection.execute("insert into reactor.dependencies values (2, 1)")


async def test_a_producers_settings_do_not_leave_dependencies_unconnected(connection: Connection) -> None:
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 2)]
        for name in ("connecting", "connected"):
            await connection.execute(f"select set_config('reactor.{name}', txid_current()::text, true)")
        await connection.execute("insert into reactor.dependencies values ($1, $2)", ids[1], ids[0])
    assert await states(connection, {"a": ids[0], "b": ids[1]}) == {"a": "pending", "b": "waiting"}


async def test_a_producers_settings_do_not_hide_a_cycle(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="depend on each other"):
        async with connection.transaction():
            await connection.execute("set constraints all immediate")
            await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b')")
            await connection.execute("insert into reactor.dependencies values (1, 2)")
            await connection.execute("set local reactor.connected = ''")
            await connection.execute("insert into reactor.dependencies values (2, 1)")


async def test_a_rolled_back_savepoint_leaves_later_dependencies_connected(connection: Connection) -> None:
    async with connection.transaction():
        ids = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 3)]
        savepoint = connection.transaction()
        await savepoint.start()
        await connection.execute("insert into reactor.dependencies values ($1, $2)", ids[1], ids[0])
        await savepoint.rollback()
        await connection.execute("insert into reactor.dependencies values ($1, $2)", ids[2], ids[0])
    assert await states(connection, dict(zip("abc", ids, strict=True))) == {
        "a": "pending",
        "b": "pending",
        "c": "waiting",
    }
    assert await connection.fetchval("select count(*) from reactor.connecting") == 0


async def test_a_retry_leaves_a_dependant_whose_exclusive_scope_was_taken(
    connection: Connection, worker: Worker
) -> None:
    async with connection.transaction():
        jobs = [NewJob(job_type="work"), NewJob(job_type="work", scope="s", exclusive=True)]
        first, second = await submit_many(connection, jobs)
        await connection.execute("insert into reactor.dependencies values ($1, $2)", second.id, first.id)
    await end(connection, worker, first.id, Failed("x"))
    await submit_many(connection, [NewJob(job_type="work", scope="s", exclusive=True)])
    again = await connection.fetch(statements.RETRY, [first.id])
    assert [r["id"] for r in again] == [first.id]
    assert (await states(connection, {"it": second.id}))["it"] == "cancelled"


async def test_a_dependant_inserted_during_a_retry_of_its_dependency_is_not_missed(
    connection: Connection, worker: Worker, database: str
) -> None:
    async with connect(database, name="producer") as producer:
        for _ in range(60):
            [needed] = await submit_many(connection, [NewJob(job_type="work")])
            await end(connection, worker, needed.id, Failed("x"))

            async def insert_dependant(needed_id: int = needed.id) -> int:
                async with producer.transaction():
                    [job] = await submit_many(producer, [NewJob(job_type="work")])
                    await producer.execute("insert into reactor.dependencies values ($1, $2)", job.id, needed_id)
                return job.id

            dependant, _ = await asyncio.gather(insert_dependant(), connection.fetch(statements.RETRY, [needed.id]))
            assert (await states(connection, {"it": dependant}))["it"] == "waiting"
            await end(connection, worker, needed.id)
            await end(connection, worker, dependant)


async def test_jobs_of_one_scope_that_depend_on_each_other_never_deadlock(
    connection: Connection, worker: Worker, database: str
) -> None:
    """A settle, a cancel of the job's dependant and a producer's new dependant, all of one scope."""
    async with AsyncExitStack() as stack:
        operator, producer = [await stack.enter_async_context(connect(database, name=n)) for n in ("op", "producer")]

        async def insert_dependant(needed: int, scope: str) -> None:
            async with producer.transaction():
                [job] = await submit_many(producer, [NewJob(job_type="other", scope=scope)])
                await producer.execute("insert into reactor.dependencies values ($1, $2)", job.id, needed)

        for round_number in range(60):
            scope = f"s{round_number}"
            async with connection.transaction():
                made = await submit_many(connection, [NewJob(job_type="work", scope=scope) for _ in range(3)])
                await connection.execute("insert into reactor.dependencies values ($1, $2)", made[1].id, made[0].id)
            [job] = await claim(connection, worker, 10)
            await asyncio.gather(
                settle(connection, [Ending(job.id, job.attempt_id, Completed())]),
                operator.fetch(statements.CANCEL, [made[1].id], "no"),
                insert_dependant(made[2].id, scope),
            )
            await connection.execute("update reactor.jobs set state = 'completed' where state <> 'cancelled'")


async def test_a_job_can_depend_on_a_job_with_a_higher_id(connection: Connection, worker: Worker) -> None:
    ids = await dag(connection, "a<b b<c c<d a<d")
    for name in "dcba":
        await end(connection, worker, ids[name])


async def test_another_transactions_job_can_not_be_made_to_wait(connection: Connection) -> None:
    await submit_many(connection, [NewJob(job_type="work") for _ in range(2)])
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="not inserted by this transaction") as caught:
        await connection.execute("insert into reactor.dependencies values (2, 1)")
    assert caught.value.hint == "Insert a job and its dependencies in one transaction."


async def test_an_unknown_kind_of_dependency_is_refused(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="can't need 'success'"):
        async with connection.transaction():
            await connection.execute("insert into reactor.jobs (job_type) values ('a'), ('b')")
            await connection.execute("insert into reactor.dependencies values (2, 1, 'success')")


async def test_jobs_that_wait_without_a_reason_are_found(connection: Connection, worker: Worker) -> None:
    """There should be none; deleting a dependency by hand creates one."""
    ids = await dag(connection, "b<a")
    assert await connection.fetch(statements.REPAIR_WAITING, 10) == []
    await connection.execute("delete from reactor.dependencies where job_id = $1", ids["b"])
    found: list[Any] = await connection.fetch(statements.REPAIR_WAITING, 10)
    assert [r["id"] for r in found] == [ids["b"]]
    await end(connection, worker, ids["b"])


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_job_that_another_one_needs_can_not_be_deleted(
    connection: Connection, worker: Worker, is_cancelled: bool
) -> None:
    ids = await dag(connection, "b<a c<b")
    if is_cancelled:
        await end(connection, worker, ids["a"], Failed("x"))
    with pytest.raises(asyncpg.ForeignKeyViolationError, match=f"job {ids['a']} can't be deleted") as caught:
        await connection.execute("delete from reactor.jobs where id = $1", ids["a"])
    assert f"delete from reactor.dependencies where job_id = {ids['b']}" in (caught.value.hint or "")
    await connection.execute("delete from reactor.jobs where id = any ($1)", list(ids.values()))


async def test_a_job_whose_dependants_have_what_they_need_can_be_deleted(
    connection: Connection, worker: Worker
) -> None:
    ids = await dag(connection, "b<a")
    await end(connection, worker, ids["a"])
    await connection.execute("delete from reactor.jobs where id = $1", ids["a"])
    await end(connection, worker, ids["b"])


async def test_a_cause_is_pruned_after_the_jobs_of_other_pipelines_that_it_cancelled(
    connection: Connection, worker: Worker
) -> None:
    """Otherwise a retry of such a job would run it although its need was never met."""
    async with connection.transaction():
        cause, dependant = [job.id for job in await submit_many(connection, [NewJob(job_type="work")] * 2)]
        await connection.execute("insert into reactor.dependencies values ($1, $2)", dependant, cause)
    await end(connection, worker, cause, Failed("x"))

    async def pruned() -> list[int]:
        before = {r["id"] for r in await connection.fetch("select id from reactor.jobs")}
        states = ["completed", "failed", "cancelled"]
        await connection.fetch(statements.PRUNE, -1.0, states, 100, True, "{}", False, False)
        after = {r["id"] for r in await connection.fetch("select id from reactor.jobs")}
        return sorted(before - after)

    await connection.execute("update reactor.jobs set tags = '{keep}', finished_at = null where id = $1", dependant)
    assert await pruned() == []
    again = await connection.fetch(statements.RETRY, [dependant])
    assert [tuple(row) for row in again] == [(dependant, "cancelled")]
    assert await pruned() == [dependant]
    assert await pruned() == [cause]
