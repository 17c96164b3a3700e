"""Guarantee 4: a handler's data, children, result and final state are one commit: written once, or not at all."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from reactor import Completed, Context, Fail, Job, Partial, Registry, Retry, Snooze, SyncContext, submit
from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.handlers.transaction import Transaction
from reactor.job import JobState
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from tests.support.claim_loops import Running, run
from tests.support.jobs import Row, has_ended, insert
from tests.support.link import link_for
from tests.support.logs import Events
from tests.support.until import until


class Ledger:
    """A table that handlers write to, and how another session sees it and the jobs."""

    def __init__(self, url: str, connection: Connection, registry: Registry) -> None:
        self.url = url
        self.connection = connection
        self.registry = registry

    async def submit(self, payload: dict[str, Any] | None = None, **options: Any) -> int:
        return (await submit(self.connection, "work", payload, **options)).id

    async def run(self, **options: Any) -> dict[JobState, int]:
        async with asyncio.timeout(20):
            return await run_until_idle(self.url, self.registry, **options)

    async def ran(self, **options: Any) -> dict[str, Any]:
        job_id = await self.submit(**options)
        await self.run()
        return await self.row(job_id)

    async def row(self, job_id: int) -> dict[str, Any]:
        found = await self.connection.fetchrow("select *, xmin from reactor.jobs where id = $1", job_id)
        assert found
        return dict(found)

    async def entries(self) -> list[str]:
        return [r["entry"] for r in await self.connection.fetch("select entry from ledger order by id")]

    async def children(self) -> list[dict[str, Any]]:
        found = await self.connection.fetch(
            "select *, xmin from reactor.jobs where parent_id is not null or job_type = 'child' order by id"
        )
        return [dict(r) for r in found]


@pytest.fixture
async def ledger(database: str, connection: Connection, registry: Registry) -> AsyncIterator[Ledger]:
    await connection.execute("create table ledger (id bigint generated always as identity primary key, entry text)")
    yield Ledger(database, connection, registry)
    assert await connection.fetchval("select count(*) from pg_prepared_xacts") == 0


WRITE = "insert into ledger (entry) values ($1)"


# One commit


async def test_data_children_result_and_state_are_one_commit(ledger: Ledger, registry: Registry) -> None:
    """D6: nothing is visible before the commit, and one transaction has written everything."""

    @registry.register("work")
    async def work(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            await ctx.chain("child")
        assert await ledger.entries() == [], "leaving the block does not commit"
        assert await ledger.children() == []
        return {"rows": 1}

    after = await ledger.ran()
    assert (after["state"], json.loads(after["result"]), after["children"]) == ("completed", {"rows": 1}, 1)
    [child] = await ledger.children()
    written = await ledger.connection.fetchval("select xmin from ledger")
    assert after["xmin"] == child["xmin"] == written
    assert await ledger.entries() == ["data"]


async def test_a_reader_sees_the_whole_commit_or_nothing(ledger: Ledger, registry: Registry) -> None:
    """At any moment."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        await ctx.chain("child")

    seen: set[tuple[int, int, int]] = set()
    look = (
        "select (select count(*) from ledger), count(*) filter (where job_type = 'child'), "
        "count(*) filter (where state = 'completed') from reactor.jobs"
    )
    for _ in range(20):
        await ledger.submit()
    running = asyncio.create_task(ledger.run(concurrency=3))
    while not running.done():
        found = await ledger.connection.fetchrow(look)
        assert found
        seen.add((found[0], found[1], found[2]))
    await running
    assert all(entries == children == completed for entries, children, completed in seen), seen
    assert len(await ledger.entries()) == 20


async def test_a_transaction_takes_two_round_trips_more_than_its_statements(
    ledger: Ledger, registry: Registry, row: Row
) -> None:
    """One to begin and one to commit, beside the handler's statements and the job's end: a server may be far away."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute(WRITE, await own.fetchval("select 'data'"))

    async with link_for(ledger.url) as (link, url), run(url, registry, concurrency=1):
        for _ in range(3):
            link.round_trips.clear()
            job_id = await ledger.submit()
            await until(partial(has_ended, row, job_id))
        assert link.round_trips["reactor handlers pod-1"] == 5


async def test_what_a_handler_sets_for_its_session_ends_with_its_transaction(
    ledger: Ledger, registry: Registry, connection: Connection, row: Row
) -> None:
    """Committed or rolled back: the next user of the connection finds it as if it were new."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:
            await own.execute(WRITE, await own.fetchval("show work_mem"))
            await own.execute("select set_config('work_mem', '64kB', false), pg_advisory_lock(7)")
            if job.payload:
                raise Fail("rolled back")

    async with run(ledger.url, registry, concurrency=1):
        for payload in ({}, {"fails": True}, {}, {}):
            job_id = await ledger.submit(payload)
            await until(partial(has_ended, row, job_id))
            assert await connection.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
    assert await ledger.entries() == [await connection.fetchval("show work_mem")] * 3


@pytest.mark.parametrize(
    ("raises", "state"),
    [
        (ValueError("boom"), "failed"),
        (Fail("permanently"), "failed"),
        (Retry(after=60), "failed"),
        (Snooze(60), "pending"),
        (SystemExit(1), "failed"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("where", ["inside", "outside"])
async def test_an_exception_leaves_only_the_error(
    ledger: Ledger, registry: Registry, raises: BaseException, state: str, where: str
) -> None:
    """D6"""

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            await ctx.chain("child")
            if where == "inside":
                raise raises
        raise raises

    after = await ledger.ran()
    assert (after["state"], after["result"], after["children"]) == (state, None, 0)
    assert (await ledger.entries(), await ledger.children()) == ([], [])


@pytest.mark.parametrize("returned", [{"x": float("nan")}, {"x": "\0"}, 5, Partial(message=5)], ids=str)  # type: ignore[arg-type]
async def test_data_is_rolled_back_if_the_result_can_not_be_stored(
    ledger: Ledger, registry: Registry, returned: object
) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> Any:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        await ctx.chain("child")
        return returned

    after = await ledger.ran()
    assert (after["state"], after["children"]) == ("failed", 0)
    assert (await ledger.entries(), await ledger.children()) == ([], [])


async def test_a_constraint_that_is_checked_at_commit_fails_the_attempt(
    ledger: Ledger, registry: Registry, events: Events
) -> None:
    await ledger.connection.execute("alter table ledger add unique (entry) deferrable initially deferred")

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.executemany(WRITE, [("same",), ("same",)])

    after = await ledger.ran()
    assert after["state"] == "failed"
    assert "ledger_entry_key" in after["error"]
    assert await ledger.entries() == []
    assert not [event for event in events if "by SQL" in event["event"]], "it was not the handler that ended it"


async def test_a_statement_that_failed_and_was_ignored_fails_the_attempt(ledger: Ledger, registry: Registry) -> None:
    """The server has aborted the transaction, so nothing of it can be committed."""

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            with pytest.raises(asyncpg.DivisionByZeroError):
                await connection.execute("select 1 / 0")

    after = await ledger.ran()
    assert after["state"] == "failed"
    assert await ledger.entries() == []


@pytest.mark.parametrize("word", ["commit", "rollback"])
async def test_a_handler_that_ends_its_transaction_by_sql_fails_permanently(
    ledger: Ledger, registry: Registry, events: Events, word: str
) -> None:
    """Later writes would be committed separately, and a retry would write them twice."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(word)
            await connection.execute(WRITE, "alone")
        await ctx.chain("child")

    row = await ledger.ran()
    assert (row["state"], row["attempts"]) == ("failed", 1)
    assert "as SQL" in row["error"]
    assert [event for event in events if "by SQL" in event["event"]]
    assert await ledger.children() == []


async def test_partial_keeps_data_and_children(ledger: Ledger, registry: Registry, running: Running) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> Partial:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        await ctx.chain("child")
        return Partial({"rows": 1}, "two are missing")

    job_id = await ledger.submit()
    assert await ledger.run() == {JobState.PARTIAL: 1}
    after = await ledger.row(job_id)
    assert (after["state"], after["status_message"], after["children"]) == ("partial", "two are missing", 1)
    assert await ledger.entries() == ["data"]


@pytest.mark.parametrize("where", ["outside", "inside", "in a nested block", "in a step", "in a step's own block"])
async def test_a_failure_can_keep_data_and_children(ledger: Ledger, registry: Registry, where: str) -> None:
    """D6: the job is failed, and everything is one commit."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        failure = Fail("2 rows are invalid", result={"rows": 1}, message="see the report", keep_data=True)

        async def step() -> None:
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, "data")
                await ctx.chain("child")
                if where == "in a step's own block":
                    raise failure
            raise failure

        if "step" in where:
            await ctx.step("load", step)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            if where == "inside":
                await ctx.chain("child")
                raise failure
            async with ctx.transaction():
                await ctx.chain("child")
                if where == "in a nested block":
                    raise failure
        raise failure

    after = await ledger.ran()
    assert (after["state"], after["error"], after["attempts"]) == ("failed", "2 rows are invalid", 1)
    assert (json.loads(after["result"]), after["status_message"]) == ({"rows": 1}, "see the report")
    assert (await ledger.entries(), after["children"]) == (["data"], 1)
    [child] = await ledger.children()
    assert after["xmin"] == child["xmin"] == await ledger.connection.fetchval("select xmin from ledger")


async def test_a_thread_that_fails_can_keep_its_data(ledger: Ledger, registry: Registry) -> None:
    @registry.register("work")
    def work(ctx: SyncContext) -> None:
        with ctx.transaction() as connection:
            connection.execute(WRITE, "data")
            ctx.chain("child")
            raise Fail("2 rows are invalid", keep_data=True)

    after = await ledger.ran()
    assert (after["state"], after["children"]) == ("failed", 1)
    assert await ledger.entries() == ["data"]


@pytest.mark.parametrize("nested", [False, True])
async def test_a_failure_whose_data_can_not_be_kept_is_final_and_says_so(
    ledger: Ledger, registry: Registry, nested: bool
) -> None:
    """The server has aborted the transaction. Calling the handler again would not help."""

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            async with ctx.transaction() if nested else nullcontext():
                try:
                    await connection.execute("select 1 / 0")
                except asyncpg.DivisionByZeroError:
                    raise Fail("no rows", result={"rows": 0}, keep_data=True) from None

    after = await ledger.ran()
    assert (after["state"], after["attempts"], json.loads(after["result"])) == ("failed", 1, {"rows": 0})
    assert after["error"].startswith("no rows\n\nIts data could not be kept: ")
    assert await ledger.entries() == []


async def test_a_failure_that_keeps_data_is_repeated_after_a_deadlock(
    ledger: Ledger, registry: Registry, events: Events
) -> None:
    """The server undid the transaction, and a second call may commit it."""
    await ledger.connection.execute(
        "create function break_once() returns trigger language plpgsql as $$ begin "
        "if nextval('breaks') = 1 then raise exception using errcode = 'deadlock_detected'; end if; return null; "
        "end $$; "
        "create sequence breaks; create constraint trigger break_once after insert on ledger "
        "deferrable initially deferred for each row execute function break_once()"
    )

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        raise Fail("2 rows are invalid", keep_data=True)

    after = await ledger.ran()
    assert (after["state"], after["error"], after["attempts"]) == ("failed", "2 rows are invalid", 1)
    assert await ledger.entries() == ["data"]
    assert [event for event in events if event["event"] == "transaction repeated"]


async def test_run_job_returns_the_state_that_the_transaction_wrote(
    ledger: Ledger, registry: Registry, running: Running
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Partial | None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        return Partial() if job.payload else None

    async with running("none of these") as runner:
        assert await runner.run_job(await ledger.submit({"x": 1})) is JobState.PARTIAL
        assert await runner.run_job(await ledger.submit()) is JobState.COMPLETED
        assert runner.counts.states == {JobState.PARTIAL: 1, JobState.COMPLETED: 1}


async def _ended(ledger: Ledger, job_id: int) -> bool:
    return (await ledger.row(job_id))["finished_at"] is not None


# The fence


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_an_attempt_that_was_preempted_leaves_nothing(
    ledger: Ledger, registry: Registry, events: Events, ends: str
) -> None:
    """D5, F6, F7: on success and on error; the row belongs to its new owner."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            await ctx.chain("child")
            await ledger.connection.fetch(statements.CANCEL, [job.id], "by the operator")
        if ends == "raises":
            raise ValueError("boom")
        return {"rows": 1}

    after = await ledger.ran(scope="s")
    assert (after["state"], after["error"], after["result"]) == ("cancelled", "by the operator", None)
    assert (after["children"], after["attempt_id"], after["worker_id"]) == (0, None, None)
    assert (await ledger.entries(), await ledger.children()) == ([], [])
    assert [e["job_id"] for e in events if e["event"] == "writeback_stale_attempt"] == [after["id"]]


@pytest.mark.parametrize("new_one", ["has ended", "runs"])
async def test_only_the_newer_of_two_attempts_writes(ledger: Ledger, registry: Registry, new_one: str) -> None:
    """F7: the old one, considered dead in the middle of its transaction, continues during or after the new one."""
    taken, new_runs, old_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, f"attempt {job.attempts}")
            await ctx.chain("child", {"attempt": job.attempts})
            if job.attempts == 1:
                await ledger.connection.execute("update reactor.workers set lease_until = '-infinity'")
                await ledger.connection.execute("select reactor.sweep(10)")
                taken.set()
                await (new_runs.wait() if new_one == "runs" else until(lambda: _ended(ledger, job.id)))
            elif new_one == "runs":
                new_runs.set()
                await old_ended.wait()
        return {"attempt": job.attempts}

    job_id = await ledger.submit(max_attempts=3)
    old = asyncio.create_task(ledger.run())
    await taken.wait()
    new = asyncio.create_task(ledger.run())
    await old
    old_ended.set()
    await new
    after = await ledger.row(job_id)
    assert (after["state"], json.loads(after["result"]), after["children"]) == ("completed", {"attempt": 2}, 1)
    assert await ledger.entries() == ["attempt 2"]
    assert [json.loads(c["payload"]) for c in await ledger.children()] == [{"attempt": 2}]


async def test_a_cancel_stops_a_handler_that_waits_in_its_transaction(
    ledger: Ledger, registry: Registry, running: Running
) -> None:
    """F6, F12: it is cancelled immediately, its work is rolled back, and its scope is free when it has stopped."""
    inside = asyncio.Event()

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            inside.set()
            await connection.execute("select pg_sleep(60)")

    async with running():
        job_id = await ledger.submit(scope="s")
        await inside.wait()
        await ledger.connection.fetch(statements.CANCEL, [job_id], "no")

        async def free() -> bool:
            return (await ledger.row(job_id))["worker_id"] is None

        await until(free)
    assert await ledger.entries() == []
    assert (await ledger.row(job_id))["state"] == "cancelled"


# Blocks


async def test_a_second_block_that_fails_is_rolled_back_alone(ledger: Ledger, registry: Registry) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "first")
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with ctx.transaction() as same:
                    await same.execute(WRITE, "inner")
                    await ctx.chain("child", {"of": "inner"})
                    await same.execute("select 1 / 0")
            await connection.execute(WRITE, "still first")
            await ctx.chain("child", {"of": "first"})
        with pytest.raises(ValueError, match="boom"):
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, "second")
                await ctx.chain("child", {"of": "second"})
                raise ValueError("boom")
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "third")

    assert (await ledger.ran())["state"] == "completed"
    assert await ledger.entries() == ["first", "still first", "third"]
    assert [json.loads(child["payload"]) for child in await ledger.children()] == [{"of": "first"}]


async def test_a_first_block_that_fails_can_be_followed_by_another(ledger: Ledger, registry: Registry) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> None:
        with pytest.raises(ValueError, match="boom"):
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, "first")
                raise ValueError("boom")
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "second")

    assert (await ledger.ran())["state"] == "completed"
    assert await ledger.entries() == ["second"]


async def test_two_tasks_can_not_start_the_one_transaction(ledger: Ledger, registry: Registry) -> None:
    """The data of one of them would be lost without an error."""

    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        async def write(entry: str) -> None:
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, entry)

        await asyncio.gather(write("a"), write("b"))

    after = await ledger.ran()
    assert after["state"] == "failed"
    assert "one transaction" in after["error"]
    assert await ledger.entries() == []


async def test_a_handlers_transaction_may_refer_to_its_job(ledger: Ledger, registry: Registry) -> None:
    """A foreign key to reactor.jobs locks the job's row, but not against progress and the end."""
    await ledger.connection.execute("alter table ledger add job_id bigint references reactor.jobs")

    @registry.register("work", timeout_seconds=15, max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger (entry, job_id) values ('data', $1)", job.id)
            await ctx.progress(0.5)

    assert (await ledger.ran())["state"] == "completed"


# Transactions that the server aborts


@pytest.mark.parametrize(
    ("sqlstate", "when", "in_thread"),
    [("40001", "in it", False), ("40P01", "at commit", False), ("40P01", "in it", True), ("40001", "at commit", True)],
)
async def test_a_transaction_that_the_server_aborts_is_repeated_and_not_charged(
    ledger: Ledger, registry: Registry, sqlstate: str, when: str, in_thread: bool
) -> None:
    runs: list[int] = []
    await ledger.connection.execute(
        f"""
        create sequence tries;
        create function undo() returns trigger language plpgsql as
        $$ begin if nextval('tries') < 3 then raise 'again' using errcode = '{sqlstate}'; end if; return new; end $$;
        create constraint trigger undo after insert on ledger
            deferrable initially {"immediate" if when == "in it" else "deferred"} for each row execute function undo()
        """
    )

    async def direct(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            await ctx.chain("child")

    def threaded(job: Job, ctx: SyncContext) -> None:
        runs.append(job.attempts)
        with ctx.transaction() as connection:
            connection.execute(WRITE, "data")
            ctx.chain("child")

    registry.register("work", max_attempts=1)(threaded if in_thread else direct)
    after = await ledger.ran()
    assert (after["state"], after["attempts"], runs) == ("completed", 1, [1, 1, 1])
    assert (await ledger.entries(), after["children"]) == (["data"], 1)
    assert len(await ledger.children()) == 1


async def test_after_a_deadlock_both_jobs_complete(ledger: Ledger, registry: Registry) -> None:
    await ledger.connection.execute("insert into ledger (entry) values ('a'), ('b'); set deadlock_timeout = '50ms'")
    await ledger.connection.execute("alter database %s set deadlock_timeout = '50ms'" % await _name(ledger))
    both, first = asyncio.Barrier(2), [True, True]

    @registry.register("work", max_attempts=1)
    async def work(payload: dict[str, Any], ctx: Context) -> None:
        async with ctx.transaction() as connection:
            for number, entry in enumerate(payload["order"]):
                await connection.execute("update ledger set entry = entry || '!' where left(entry, 1) = $1", entry)
                if number == 0 and first:
                    first.pop()
                    await both.wait()

    ids = [await ledger.submit({"order": order}) for order in ("ab", "ba")]
    await ledger.run()
    assert [(await ledger.row(n))["state"] for n in ids] == ["completed"] * 2
    assert await ledger.entries() == ["a!!", "b!!"]


async def _name(ledger: Ledger) -> str:
    return str(await ledger.connection.fetchval("select current_database()"))


async def test_a_transaction_that_is_aborted_again_and_again_is_released(ledger: Ledger, registry: Registry) -> None:
    runs: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute("do $$ begin raise 'again' using errcode = '40001'; end $$")

    after = await ledger.ran()
    assert (after["state"], after["attempts"], after["phase"], len(runs)) == ("pending", 0, "scheduled", 5)
    [(outcome, error)] = await ledger.connection.fetch("select outcome, error from reactor.attempts")
    assert (outcome, error.splitlines()[0]) == ("released", "asyncpg.exceptions.SerializationError: again")


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_a_timeout_that_does_not_go_away_is_charged_in_the_end(
    ledger: Ledger, registry: Registry, events: Events, setting: str
) -> None:
    """The server's, or one that the handler set: they can't be told apart."""
    runs: list[int] = []
    await ledger.connection.execute(f"alter database {await _name(ledger)} set {setting} = '30ms'")
    await ledger.connection.execute("insert into ledger (entry) values ('locked')")

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute("update ledger set entry = 'data'")

    async with connect(ledger.url, name="other") as other, other.transaction():
        await other.execute("select from ledger for update")
        job_id = await ledger.submit()
        await ledger.run(skip_delays=True)
    after = await ledger.row(job_id)
    assert (after["state"], after["attempts"], runs) == ("failed", 1, [1] * 11)
    assert "timeout" in after["error"]
    released = [event for event in events if event["event"] == "attempt released"]
    assert [event["state"] for event in released] == ["pending"] * 10 + ["failed"]


@pytest.mark.parametrize("when", ["busy", "idle", "blocked", "at its commit"])
async def test_a_transaction_that_takes_longer_than_transaction_timeout_is_released_at_once(
    ledger: Ledger, registry: Registry, when: str
) -> None:
    """And not called again at once, which would take as long. The server ends the session; while a handler does not use
    it, the driver does not say why."""
    if not await ledger.connection.fetchval("select current_setting('transaction_timeout', true) is not null"):
        pytest.skip("transaction_timeout exists since PostgreSQL 17: make test PG=18")
    runs: list[int] = []
    # The engine's own transactions are shorter, also on a busy machine.
    await ledger.connection.execute(f"alter database {await _name(ledger)} set transaction_timeout = '2s'")

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            match when:
                case "busy":
                    await connection.execute("select pg_sleep(60)")
                case "idle":
                    await asyncio.sleep(3)
                case _:
                    time.sleep(3)  # noqa: ASYNC251
            if when != "at its commit":
                await connection.execute(WRITE, "more")

    after = await ledger.ran()
    assert (after["state"], after["attempts"], after["phase"], runs) == ("pending", 0, "scheduled", [1])
    assert await ledger.connection.fetchval("select outcome from reactor.attempts") == "released"
    assert await ledger.entries() == []


async def test_a_lock_that_another_session_holds_for_a_while_is_not_charged(ledger: Ledger, registry: Registry) -> None:
    await ledger.connection.execute(f"alter database {await _name(ledger)} set lock_timeout = '30ms'")
    await ledger.connection.execute("insert into ledger (entry) values ('locked')")

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("update ledger set entry = 'data'")

    async with connect(ledger.url, name="other") as other, other.transaction():
        await other.execute("select from ledger for update")
        after = await ledger.ran()
    assert (after["state"], after["attempts"], after["phase"]) == ("pending", 0, "scheduled")
    await ledger.run(skip_delays=True)
    after = await ledger.row(after["id"])
    assert (after["state"], after["attempts"]) == ("completed", 1)
    assert await ledger.entries() == ["data"]


async def test_a_read_only_server_is_not_charged_to_handlers(ledger: Ledger, registry: Registry) -> None:
    """Including the sessions that the engine opens meanwhile."""
    refused: list[BaseException] = []

    async def set_read_only(value: str) -> None:
        await ledger.connection.execute(
            f"alter database {await _name(ledger)} set default_transaction_read_only = {value}"
        )

    async def write(ctx: Context) -> None:
        async with ctx.transaction() as connection:
            try:
                await connection.execute(WRITE, "data")
            except asyncpg.ReadOnlySQLTransactionError as error:
                refused.append(error)
                raise

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        if not refused:
            await set_read_only("on")
        await write(ctx)

    job_id = await ledger.submit()
    running = asyncio.create_task(ledger.run())
    await until(lambda: refused)
    await set_read_only("off")
    await running
    after = await ledger.row(job_id)
    assert (after["state"], after["attempts"]) == ("completed", 1), after["error"]
    assert await ledger.entries() == ["data"]


@pytest.mark.parametrize("what", ["read-only", "terminated", "unreachable"])
async def test_a_failure_of_the_server_in_the_pool_is_released_and_not_charged(
    ledger: Ledger, registry: Registry, row: Row, what: str
) -> None:
    """And not called again in the same attempt: what it did in the pool may be committed."""
    runs: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        if len(runs) > 1:
            await ctx.pool.execute(WRITE, "data")
            return
        match what:
            case "read-only":
                await ctx.pool.execute("begin read only; create table refused ()")
            case "terminated":
                await ctx.pool.execute("select pg_terminate_backend(pg_backend_pid())")
            case _:
                link.refuse()
                try:
                    await ctx.pool.execute(WRITE, "refused")
                finally:
                    link.heal()

    job_id = await ledger.submit()
    async with link_for(ledger.url) as (link, url), run(url, registry):
        await until(partial(has_ended, row, job_id))
    after = await ledger.row(job_id)
    assert (after["state"], after["attempts"], runs) == ("completed", 1, [1, 1]), after["error"]
    assert await ledger.connection.fetchval("select outcome from reactor.attempts") == "released"
    assert await ledger.entries() == ["data"]


TERMINATE = (
    "select pg_terminate_backend(pid) from pg_stat_activity "
    "where application_name like 'reactor handlers%' and datname = current_database()"
)


@pytest.mark.parametrize("when", ["idle", "busy", "before it begins"])
async def test_a_connection_lost_in_a_transaction_is_not_charged(ledger: Ledger, registry: Registry, when: str) -> None:
    runs: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        first = len(runs) == 1
        if first and when == "before it begins":
            await ctx.pool.release(await ctx.pool.acquire())
            await ledger.connection.execute(TERMINATE)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            await ctx.chain("child")
            if first and when == "idle":
                await ledger.connection.execute(TERMINATE)
                await connection.execute(WRITE, "more")
            elif first and when == "busy":
                sleeping = asyncio.ensure_future(connection.execute("select pg_sleep(30)"))
                await asyncio.sleep(0)
                await ledger.connection.execute(TERMINATE)
                await sleeping

    after = await ledger.ran()
    assert (after["state"], after["attempts"], after["children"]) == ("completed", 1, 1), after["error"]
    assert await ledger.entries() == ["data"]
    assert len(await ledger.children()) == 1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_commit_whose_reply_was_lost_is_looked_up_and_not_repeated(
    ledger: Ledger, registry: Registry, monkeypatch: pytest.MonkeyPatch, events: Events, committed: bool
) -> None:
    """A second run would do everything twice."""
    runs: list[int] = []
    commit = asyncpg.transaction.Transaction.commit

    async def lossy(self: Any) -> None:
        if len(runs) == 1 and self._connection.get_settings().application_name.startswith("reactor handlers"):
            if committed:
                await commit(self)
            self._connection.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        await commit(self)

    monkeypatch.setattr(asyncpg.transaction.Transaction, "commit", lossy)

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> Partial:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        await ctx.chain("child")
        return Partial()

    job_id = await ledger.submit()
    assert await ledger.run() == {JobState.PARTIAL: 1}
    assert len(runs) == (1 if committed else 2)
    assert await ledger.entries() == ["data"]
    after = await ledger.row(job_id)
    assert (after["state"], after["attempts"], after["children"]) == ("partial", 1, 1)
    assert len(await ledger.children()) == 1
    assert not [e for e in events if e["event"] == "writeback_stale_attempt"]


async def test_a_job_that_was_cancelled_while_its_connection_was_lost_is_stale_and_frees_its_scope(
    ledger: Ledger, registry: Registry, events: Events, running: Running
) -> None:
    """Guarantee 5: if it were considered committed, its scope would be held as long as the worker lives."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
            # No notification of this cancel arrives in time: the attempt detects it in the database.
            await ledger.connection.execute(
                "update reactor.jobs set state = 'cancelled', attempt_id = null, finished_at = now() where id = $1",
                job.id,
            )
            await ledger.connection.execute(TERMINATE)
            await connection.execute(WRITE, "more")

    after = await ledger.ran(scope="s")
    assert (after["state"], after["worker_id"]) == ("cancelled", None)
    assert [e["job_id"] for e in events if e["event"] == "writeback_stale_attempt"] == [after["id"]]
    assert await ledger.entries() == []


async def test_a_timeout_during_the_commit_does_not_run_the_handler_again(
    ledger: Ledger, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    async def slow_and_lost(self: Any) -> None:
        await asyncio.sleep(0.15)  # longer than the timeout
        self.connection.terminate()
        raise asyncpg.ConnectionDoesNotExistError("lost")

    @registry.register("work", max_attempts=1, timeout_seconds=0.1)
    async def work(job: Job, ctx: Context) -> None:
        runs.append(job.attempts)
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, "data")
        monkeypatch.setattr(Transaction, "commit", slow_and_lost)

    after = await ledger.ran()
    monkeypatch.undo()
    assert (after["state"], after["attempts"], len(runs)) == ("pending", 0, 1), "the handler was in time"


# Children


async def test_children_outside_a_transaction_are_created_with_the_end(ledger: Ledger, registry: Registry) -> None:
    """D8: a retry does not create them twice; the same commit settles the parent."""

    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        await ctx.chain("child", {"attempt": job.attempts})
        assert await ledger.children() == []
        if job.attempts < 3:
            raise ValueError

    after = await ledger.ran()
    assert (after["state"], after["attempts"], after["children"]) == ("completed", 3, 1)
    [child] = await ledger.children()
    assert json.loads(child["payload"]) == {"attempt": 3}
    assert (child["parent_id"], child["pipeline_id"], child["xmin"]) == (
        after["id"],
        after["pipeline_id"],
        after["xmin"],
    )


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_children_with_a_used_key_or_a_busy_exclusive_scope_are_skipped(
    ledger: Ledger, registry: Registry, in_transaction: bool, events: Events
) -> None:
    """Existing jobs are not counted and keep their parents. Jobs that an exclusive scope prevents are logged."""
    other = uuid4()
    held = await submit(ledger.connection, "child", idempotency_key="k", run_after=None, queue="elsewhere")

    @registry.register("work")
    async def work(ctx: Context) -> None:
        if in_transaction:
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, "data")
        await ctx.chain("child", idempotency_key="k")
        await ctx.chain("child", idempotency_key="new")
        await ctx.chain("child", scope="s", exclusive=True)
        await ctx.chain("child", scope="s", exclusive=True)
        await ctx.chain("child", pipeline_id=other)

    after = await ledger.ran()
    assert (after["state"], after["children"]) == ("completed", 3), after["error"]
    kept, *children = await ledger.children()
    assert (kept["id"], kept["parent_id"]) == (held.id, None)
    assert [c["parent_id"] for c in children] == [after["id"]] * 3
    assert [c["pipeline_id"] for c in children] == [after["pipeline_id"], after["pipeline_id"], other]
    [logged] = [event for event in events if event["event"] == "chained jobs left out"]
    assert (logged["job_id"], logged["busy_with"]) == (after["id"], [children[1]["id"]])


async def test_no_child_and_many_children_are_counted(ledger: Ledger, registry: Registry) -> None:
    """D9: a fan-out. The parent stores the number of its children, even if it is 0."""

    @registry.register("work")
    async def work(payload: dict[str, Any], ctx: Context) -> None:
        child = {"number": 0}
        for number in range(payload["children"]):
            child["number"] = number
            await ctx.chain("child", child)

    none, many = await ledger.submit({"children": 0}), await ledger.submit({"children": 50})
    await ledger.run()
    assert [(await ledger.row(n))["children"] for n in (none, many)] == [0, 50]
    numbers = [json.loads(c["payload"])["number"] for c in await ledger.children()]
    assert numbers == list(range(50)), "each as its payload was when it was chained"
    await ledger.connection.execute("select from reactor.retry($1)", [none, many])
    await ledger.run()
    assert [(await ledger.row(n))["children"] for n in (none, many)] == [0, 100], (
        "those of its first run are its own, too"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"payload": {"x": float("nan")}}, "be encoded as JSON"),
        ({"payload": {"x": "\0"}}, "NUL"),
        ({"colour": "red"}, "colour"),
        ({"priority": 5000}, "priority 5000 is out of range"),
        ({"exclusive": True}, "scope"),
    ],
    ids=str,
)
@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_child_that_can_not_be_created_fails_its_parent_and_no_other(
    ledger: Ledger, registry: Registry, arguments: dict[str, Any], complaint: str, in_transaction: bool
) -> None:
    both = asyncio.Barrier(2)

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        await both.wait()
        if in_transaction:
            async with ctx.transaction() as connection:
                await connection.execute(WRITE, f"{job.payload}")
        await ctx.chain("child", **(arguments if job.payload else {}))

    bad, good = await ledger.submit({"bad": True}), await ledger.submit()
    await ledger.run()
    after = await ledger.row(bad)
    assert (after["state"], after["children"]) == ("failed", 0)
    assert complaint in after["error"]
    assert (await ledger.row(good))["children"] == 1
    assert len(await ledger.children()) == 1
    assert await ledger.entries() == (["{}"] if in_transaction else [])


async def test_a_stale_attempt_has_no_children(ledger: Ledger, registry: Registry) -> None:
    """F6: guarantee 3 for children."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await ctx.chain("child")
        await ledger.connection.fetch(statements.CANCEL, [job.id], "no")

    after = await ledger.ran()
    assert (after["state"], after["children"], await ledger.children()) == ("cancelled", 0, [])


# Threads


async def test_a_thread_has_the_same_transaction(ledger: Ledger, registry: Registry) -> None:
    @registry.register("work")
    def work(ctx: SyncContext) -> Completed:
        with ctx.transaction() as connection:
            connection.execute(WRITE, "first")
            connection.executemany(WRITE, [("second",), ("third",)])
            ctx.chain("child")
        with pytest.raises(ValueError, match="boom"), ctx.transaction() as connection:
            connection.execute(WRITE, "undone")
            raise ValueError("boom")
        with ctx.transaction() as connection:
            assert connection.fetchval("select count(*) from ledger") == 3
            assert [r["entry"] for r in connection.fetch("select entry from ledger limit 1")] == ["first"]
            assert connection.fetchrow("select 1 as one")["one"] == 1
        return Completed({"rows": 3})

    after = await ledger.ran()
    assert (after["state"], after["children"]) == ("completed", 1), after["error"]
    assert await ledger.entries() == ["first", "second", "third"]


@pytest.mark.parametrize("where", ["inside", "at the end of the block"])
async def test_a_thread_that_is_stopped_in_its_transaction_leaves_nothing(
    ledger: Ledger, registry: Registry, where: str, events: Events
) -> None:
    """The next one can use its connection: no block is left open."""
    loop = asyncio.get_running_loop()

    @registry.register("work")
    def work(job: Job, ctx: SyncContext) -> None:
        if job.payload.get("first"):
            with ctx.transaction() as connection:
                connection.execute(WRITE, "data")
                cancel = ledger.connection.fetch(statements.CANCEL, [job.id], "no")
                asyncio.run_coroutine_threadsafe(cancel, loop).result()
                try:
                    ctx.progress(0.5)
                except BaseException:
                    if where == "inside":
                        raise
        else:
            with ctx.transaction() as connection:
                connection.execute(WRITE, "next")

    first, second = await ledger.submit({"first": True}), await ledger.submit()
    await ledger.run(concurrency=1)
    assert [(await ledger.row(n))["state"] for n in (first, second)] == ["cancelled", "completed"]
    assert await ledger.entries() == ["next"]
    assert sum(e["event"] == "writeback_stale_attempt" for e in events) == 1


async def test_many_transactions_share_few_connections(ledger: Ledger, registry: Registry) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as connection:
            await connection.execute(WRITE, str(job.id))

    for _ in range(40):
        await ledger.submit()
    assert await ledger.run(concurrency=4) == {JobState.COMPLETED: 40}
    assert len(await ledger.entries()) == 40
    async with connect(ledger.url, name="look") as look:
        left = "select count(*) from pg_stat_activity where application_name like 'reactor handlers%' and datname = $1"
        name = await _name(ledger)

        async def none_left() -> bool:
            return bool(await look.fetchval(left, name) == 0)

        await until(none_left)


# Concurrency and time


async def test_a_transaction_that_two_tasks_open_at_once_loses_nothing(
    database: str, connection: Connection, row: Row
) -> None:
    """Guarantee 4: the writes of a completed handler are committed."""
    await connection.execute("create table ledger (n int)")
    registry = Registry()

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async def write(n: int) -> None:
            async with ctx.transaction() as session:
                await session.execute("insert into ledger values ($1)", n)

        await asyncio.gather(write(1), write(2))

    async with Reactor(database, registry=registry, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_ended(row, job_id))
        ended = await row(job_id)
        written = await connection.fetchval("select count(*) from ledger")
        assert (ended["state"], written) in (("completed", 2), ("failed", 0))
        await until(lambda: _no_transaction_is_open(connection))


async def test_a_handlers_transaction_may_be_idle_for_longer_than_the_servers_limit(
    database: str, connection: Connection, row: Row
) -> None:
    """Also if its connection was used before."""
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set idle_in_transaction_session_timeout = '300ms'")
    registry = Registry()
    started: list[int] = []

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        started.append(job.id)
        async with ctx.transaction() as session:
            await session.execute("select 1")
            await asyncio.sleep(job.payload["seconds"])
            await session.execute("select 1")

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0):
        for seconds in (0, 0.8):
            job_id = await insert(connection, payload=f'{{"seconds": {seconds}}}')
            await until(lambda job_id=job_id: has_ended(row, job_id))
            assert (await row(job_id))["error"] is None
    assert len(started) == 2


async def test_a_context_is_closed_after_its_attempt(database: str, connection: Connection, row: Row) -> None:
    """Otherwise a transaction opened later would stay open forever."""
    registry = Registry()
    raised: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []
    is_over = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def late() -> None:
            await is_over.wait()
            try:
                async with ctx.transaction():
                    pass
            except BaseException as error:
                raised.append(error)

        tasks.append(asyncio.create_task(late()))

    async with Reactor(database, registry=registry, concurrency=1, grace_seconds=0):
        job_id = await insert(connection)
        await until(lambda: has_ended(row, job_id))
        is_over.set()
        await until(lambda: tasks[0].done())
        assert raised
        await until(lambda: _no_transaction_is_open(connection))


async def _no_transaction_is_open(connection: Connection) -> bool:
    """Short transactions of the engine may be open too."""
    found: int = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    )
    return found == 0
