"""Submitting jobs: with any driver, in the caller's transaction, once with a key or an exclusive scope."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from reactor import JobOptions, JobState, NewJob, ReactorError, submit, submit_many
from reactor.database.connection import Connection, connect
from reactor.errors import DriverUnknown, JobInvalid
from reactor.lifecycle.claim import claim
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Completed, Ending
from tests.support.sessions import waits_for_a_lock
from tests.support.until import until


async def count(connection: Connection) -> int:
    number: int = await connection.fetchval("select count(*) from reactor.jobs")
    return number


async def test_submit_stores_every_option(connection: Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    pipeline = uuid4()
    made = await submit(
        connection,
        "csv_ingest",
        {"file": "ä ' \\ \n %s $1 :x.csv"},
        pipeline_id=pipeline,
        queue="reports",
        priority=-3,
        run_after=later,
        max_attempts=7,
        timeout_seconds=2.5,
        tags=["a", "b"],
        scope="year=2026",
        exclusive=True,
        idempotency_key="k",
        lane="customer=17",
        meta={"region": "eu"},
        submitted_by="alice",
    )
    row = await connection.fetchrow("select * from reactor.jobs where id = $1", made.id)
    assert row
    assert (made.pipeline_id, made.outcome) == (pipeline, "created")
    assert row["payload"] == '{"file": "ä \' \\\\ \\n %s $1 :x.csv"}'
    assert (row["queue"], row["priority"], row["run_after"], row["max_attempts"]) == ("reports", -3, later, 7)
    assert (row["timeout_seconds"], row["tags"], row["scope"], row["exclusive"]) == (2.5, ["a", "b"], "year=2026", True)
    assert (row["lane"], row["meta"], row["submitted_by"]) == ("customer=17", '{"region": "eu"}', "alice")
    assert row["state"] == JobState.PENDING


def test_the_options_are_the_optional_fields_of_a_new_job() -> None:
    fields = get_type_hints(NewJob)
    assert get_type_hints(JobOptions) == {name: fields[name] for name in fields if name not in ("job_type", "payload")}
    assert not JobOptions.__required_keys__


async def test_a_bare_insert_is_all_a_service_needs(connection: Connection) -> None:
    row = await connection.fetchrow(
        "insert into reactor.jobs (job_type, payload) values ('csv_ingest', '{\"file\": \"a.csv\"}') returning *"
    )
    assert row
    assert (row["state"], row["queue"], row["priority"], row["attempts"]) == ("pending", "default", 0, 0)
    assert (await submit(connection, "csv_ingest")).pipeline_id.version == 7


@pytest.mark.parametrize("commits", [True, False])
async def test_every_driver_joins_the_callers_transaction(database: str, connection: Connection, commits: bool) -> None:
    """asyncpg, psycopg (both kinds), SQLAlchemy (both kinds, session and connection)."""

    class Undo(Exception):
        pass

    def leave() -> None:
        if not commits:
            raise Undo

    async def by_asyncpg() -> None:
        async with connect(database, name="asyncpg") as own, own.transaction():
            assert (await submit(own, "a", {"n": 1})).outcome == "created"
            leave()

    async def by_asyncpg_pool() -> None:
        async with asyncpg.create_pool(database, min_size=1) as pool, pool.acquire() as own, own.transaction():
            assert (await submit(own, "a", {"n": 1})).outcome == "created"
            leave()

    async def by_psycopg() -> None:
        def use() -> None:
            with psycopg.connect(database) as own:
                assert submit(own, "a", {"n": "50 %"}).outcome == "created"
                assert len(submit_many(own, [NewJob(job_type="a"), NewJob(job_type="b")])) == 2
                leave()

        await asyncio.to_thread(use)

    async def by_async_psycopg() -> None:
        async with await psycopg.AsyncConnection.connect(database) as own:
            assert (await submit(own, "a", {"n": 1})).outcome == "created"
            leave()

    async def by_sqlalchemy() -> None:
        def use() -> None:
            engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
            try:
                with Session(engine) as session, session.begin():
                    assert submit(session, "a", {"n": ":x"}).outcome == "created"
                    leave()
                with engine.begin() as own:
                    assert submit(own, "a", {"n": 1}).outcome == "created"
            finally:
                engine.dispose()

        await asyncio.to_thread(use)

    async def by_async_sqlalchemy() -> None:
        engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database))
        try:
            async with AsyncSession(engine) as session, session.begin():
                assert (await submit(session, "a", {"n": 1})).outcome == "created"
                leave()
            async with engine.begin() as own:
                assert len(await submit_many(own, [NewJob(job_type="a")])) == 1
        finally:
            await engine.dispose()

    for use in (by_asyncpg, by_asyncpg_pool, by_psycopg, by_async_psycopg, by_sqlalchemy, by_async_sqlalchemy):
        with suppress(Undo):
            await use()
    assert await count(connection) == (10 if commits else 0)


async def test_submit_many_returns_jobs_in_order(connection: Connection) -> None:
    made = await submit_many(connection, [NewJob(job_type="a", payload={"n": n}) for n in range(500)])
    rows = await connection.fetch("select (payload ->> 'n')::int as n from reactor.jobs order by id")
    assert [row["n"] for row in rows] == list(range(500))
    assert [job.id for job in made] == sorted(job.id for job in made)


async def test_submit_many_with_keys_returns_jobs_in_order(connection: Connection) -> None:
    keyed = [NewJob(job_type="a", idempotency_key=f"k{n % 3}") for n in range(6)]
    made = await submit_many(connection, [*keyed, NewJob(job_type="a")])
    assert [job.outcome for job in made] == ["created"] * 3 + ["existing"] * 3 + ["created"]
    assert [job.id for job in made[:3]] == [job.id for job in made[3:6]]


async def test_a_repeated_key_creates_one_job(connection: Connection) -> None:
    """J7: within the window, in any state of the first job; a cancelled job releases its key."""
    first = await submit(connection, "a", idempotency_key="k")
    assert first.outcome == "created"
    for state in ("pending", "completed", "failed"):
        await connection.execute("update reactor.jobs set state = $1", state)
        assert await submit(connection, "a", idempotency_key="k") == first._replace(outcome="existing")
    assert (await submit(connection, "another", idempotency_key="k")).outcome == "created"
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_idempotency_key_is_taken"):
        await connection.execute("insert into reactor.jobs (job_type, idempotency_key) values ('a', 'k')")
    await connection.execute("update reactor.jobs set state = 'cancelled' where id = $1", first.id)
    assert (await submit(connection, "a", idempotency_key="k")).outcome == "created"


async def test_a_key_is_free_after_the_window_even_for_an_insert(connection: Connection) -> None:
    """J7: 24 h by default; the window is stored in the database, so that it is the same for all producers."""
    first = await submit(connection, "a", idempotency_key="k")
    await connection.execute("update reactor.jobs set created_at = created_at - interval '25 hours'")
    await connection.execute("insert into reactor.jobs (job_type, idempotency_key) values ('a', 'k')")
    assert (await submit(connection, "a", idempotency_key="k")).id != first.id
    await connection.execute("update reactor.settings set idempotency_window = '0 s'")
    assert (await submit(connection, "a", idempotency_key="k")).outcome == "created"


async def test_an_expired_key_is_used_again_without_a_lock_on_its_running_holder(
    database: str, connection: Connection, worker: Worker
) -> None:
    await submit(connection, "work", idempotency_key="k")
    [running] = await claim(connection, worker, 1)
    await connection.execute("update reactor.jobs set created_at = created_at - interval '25 hours'")
    async with connect(database, name="producer") as producer, producer.transaction():
        second = await submit(producer, "work", idempotency_key="k")
        assert second.outcome == "created"
        async with asyncio.timeout(20):
            assert await settle(connection, [Ending(running.id, running.attempt_id, Completed())])
    again = await submit(connection, "work", idempotency_key="k")
    assert (again.id, again.outcome) == (second.id, "existing")


@pytest.mark.parametrize("times", [1, 3])
async def test_of_two_producers_one_uses_an_expired_key_again(
    database: str, connection: Connection, times: int
) -> None:
    insert = "insert into reactor.jobs (job_type, idempotency_key, key_reuse) values ('a', 'k', 7)"
    for _ in range(times):
        await connection.execute(insert)
        await connection.execute("update reactor.jobs set created_at = created_at - interval '25 hours'")
    async with connect(database, name="other") as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(insert)
        async with asyncio.TaskGroup() as tasks:
            second = tasks.create_task(connection.execute(f"{insert} on conflict do nothing"))
            await until(lambda: waits_for_a_lock(other, "test"))
            await transaction.commit()
    assert second.result() == "INSERT 0 0"
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_idempotency_key_is_taken"):
        await connection.execute(insert)
    newest = await connection.fetchrow("select id, key_reuse from reactor.jobs order by id desc limit 1")
    assert newest
    assert newest["key_reuse"] == times, "what the producer wrote was ignored"
    await connection.execute("update reactor.jobs set state = 'cancelled' where id = $1", newest["id"])
    assert await connection.execute(insert) == "INSERT 0 1", "a cancelled job releases its key"


async def test_an_exclusive_scope_refuses_the_second_and_names_the_first(connection: Connection) -> None:
    first = await submit(connection, "a", scope="table=x", exclusive=True)
    second = await submit(connection, "b", scope="table=x", exclusive=True)
    assert second == first._replace(outcome="busy")
    with pytest.raises(asyncpg.UniqueViolationError, match="jobs_exclusive_scope_is_busy"):
        await connection.execute("insert into reactor.jobs (job_type, scope, exclusive) values ('a', 'table=x', true)")
    assert (await submit(connection, "b", scope="table=x")).outcome == "created"
    await connection.execute("update reactor.jobs set state = 'failed'")
    assert (await submit(connection, "b", scope="table=x", exclusive=True)).outcome == "created"


async def test_a_repeated_key_is_checked_before_the_scope(connection: Connection) -> None:
    first = await submit(connection, "a", scope="s", exclusive=True, idempotency_key="k")
    assert await submit(connection, "a", scope="s", exclusive=True, idempotency_key="k") == first._replace(
        outcome="existing"
    )


@pytest.mark.parametrize("options", [{"idempotency_key": "k"}, {"scope": "s", "exclusive": True}])
async def test_ten_concurrent_submits_create_one_job(
    database: str, connection: Connection, options: dict[str, Any]
) -> None:
    async def one() -> tuple[int, str]:
        async with connect(database, name="producer") as own:
            made = await submit(own, "a", **options)
            return made.id, made.outcome

    made = await asyncio.gather(*(one() for _ in range(10)))
    assert len({job_id for job_id, _ in made}) == 1
    assert [outcome for _, outcome in made].count("created") == 1
    assert await count(connection) == 1


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("(job_type) values ('')", "'' is not a valid job_type"),
        ("(job_type) values (' a')", "not a valid job_type"),
        ("(job_type) values (repeat('x', 201))", "not a valid job_type"),
        ("(job_type, queue) values ('a', '')", "not a valid job_type, queue or schedule name"),
        ("(job_type, payload) values ('a', '[1]')", "the payload is a JSON array, not an object"),
        ("(job_type, payload) values ('a', '\"text\"')", "the payload is a JSON string, not an object"),
        ("(job_type, payload) values ('a', jsonb_build_object('x', repeat('x', 1000001)))", "larger than 1 MB"),
        ("(job_type, exclusive) values ('a', true)", "exclusive and has no scope"),
        ("(job_type, priority) values ('a', 1001)", "priority 1001 is out of range"),
        ("(job_type, priority) values ('a', -1001)", "priority -1001 is out of range"),
        ("(job_type, scope) values ('a', '')", "not a valid scope or idempotency_key"),
        ("(job_type, max_attempts) values ('a', 0)", "max_attempts is less than 1"),
        ("(job_type, timeout_seconds) values ('a', 0)", "timeout_seconds is not a positive number"),
        ("(job_type, timeout_seconds) values ('a', 'infinity')", "timeout_seconds is not a positive number"),
        (
            "(job_type, payload) values ('a', '{\"n\": [" + "1e100000, " * 11 + "0]}')",
            "larger than 1 MB",
        ),
        ("(job_type, scope) values ('a', repeat('\U0001f600', 251))", "not a valid scope or idempotency_key"),
        ("(job_type, tags) values ('a', array_fill('t'::text, array[51]))", "too many tags"),
        ("(job_type, tags) values ('a', '{a,NULL}')", "tags must be a plain array of texts"),
        ("(job_type, tags) values ('a', '{{a,b},{c,d}}')", "tags must be a plain array of texts"),
        ("(job_type, meta) values ('a', '[1]')", "meta is a JSON array, not an object"),
        ("(job_type, meta) values ('a', jsonb_build_object('x', repeat('x', 10001)))", "meta is larger than 10 kB"),
        ("(job_type, submitted_by) values ('a', E'x\\ny')", "not a valid submitted_by"),
        ("(job_type, submitted_by) values ('a', '')", "not a valid submitted_by"),
    ],
)
async def test_an_invalid_row_is_refused_with_a_remedy(connection: Connection, columns: str, complaint: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=complaint) as caught:
        await connection.execute(f"insert into reactor.jobs {columns}")
    assert caught.value.hint


async def test_a_row_without_a_type_can_be_inserted_but_not_submitted(connection: Connection) -> None:
    """D14: rows adopted from elsewhere are never run."""
    await connection.execute("insert into reactor.jobs (job_type) values (null)")
    with pytest.raises(asyncpg.CheckViolationError, match="has no job_type"):
        await connection.execute("select reactor.submit(null)")


async def test_invalid_options_are_refused_before_they_are_sent(connection: Connection) -> None:
    for options in (
        {"payload": {"x": object()}},
        {"payload": {"x": float("nan")}},
        {"payload": {"x": "\0"}},
        {"run_after": datetime(2026, 1, 1)},
        {"colour": "blue"},
        {"meta": {"x": object()}},
    ):
        with pytest.raises(JobInvalid):
            await submit(connection, "a", **options)
    with pytest.raises(DriverUnknown, match=r"builtins\.dict"):
        submit({}, "a")  # type: ignore[call-overload]
    assert issubclass(JobInvalid, ReactorError)


async def test_an_unknown_field_in_sql_is_refused_by_name(connection: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="unknown key 'colour' in a job"):
        await connection.execute('select reactor.submit_many(\'[{"job_type": "a", "colour": "blue"}]\')')


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("reactor.submit('a', priority => 100000)", "priority 100000 is out of range"),
        ("reactor.submit('a', meta => '[]')", "meta is a JSON array, not an object"),
        ("reactor.submit_many('{}')", "not an array of objects"),
        ("reactor.submit_many('[1]')", "not an array of objects"),
        ("reactor.submit_many(null)", "not an array of objects"),
        ('reactor.submit_many(\'[{"job_type": "a", "priority": 100000}]\')', "priority 100000 is out of range"),
    ],
)
async def test_an_invalid_call_of_submit_is_refused_with_a_remedy(
    connection: Connection, call: str, complaint: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=complaint) as caught:
        await connection.execute(f"select {call}")
    assert caught.value.hint


async def test_the_longest_names_fit_into_every_index(connection: Connection) -> None:
    job = NewJob(job_type="é" * 100, queue="é" * 100, scope="é" * 500, idempotency_key="é" * 500, exclusive=True)
    [made] = await submit_many(connection, [job])
    await connection.execute("update reactor.jobs set parked = true")
    assert made.outcome == "created"


async def test_a_run_after_in_the_past_means_now(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('a', now() - interval '1 day')")
    assert await connection.fetchval("select run_after from reactor.jobs") is None


async def test_a_time_that_no_language_can_hold_is_never(connection: Connection) -> None:
    await connection.execute("insert into reactor.jobs (job_type, run_after) values ('a', '294276-12-31')")
    assert await connection.fetchval("select run_after = 'infinity' from reactor.jobs")
    assert await connection.fetchrow("select * from reactor.workload")
