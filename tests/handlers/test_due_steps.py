"""Steps with several runs: retries, backoff and timeouts of each, while the others continue."""

import asyncio
import json
import time
from collections import Counter
from typing import Any

import pytest

from reactor import Context, Fail, Job, JobState, Registry, Retry, Snooze, Step, Summary, SyncContext
from reactor.database.connection import Connection
from reactor.errors import StepInvalid
from reactor.lifecycle.release import release
from reactor.testing import run_until_idle
from tests.support.claim_loops import Running, run
from tests.support.jobs import Row, has_state, insert
from tests.support.pods import Marks, StartPod
from tests.support.until import until


async def step(connection: Connection, name: str = "a") -> dict[str, Any]:
    return dict(await connection.fetchrow("select * from reactor.steps where name = $1", name) or {})


async def counts(connection: Connection) -> dict[str, Any]:
    """Of the only job, as they are stored; they agree with its steps."""
    row = await connection.fetchrow("select step_counts, reactor.count_steps(id) from reactor.jobs")
    assert row
    assert row[0] == row[1]
    found: dict[str, Any] = json.loads(row[0])
    return found


async def fails(times: int, called: Counter[str], name: str, error: Exception | None = None) -> int:
    """A step whose first runs fail."""
    called[name] += 1
    if called[name] <= times:
        raise error or ValueError(f"run {called[name]}")
    return called[name]


async def release_all(connection: Connection) -> None:
    """As a pod does when it shuts down."""
    running = await connection.fetch("select id, attempt_id from reactor.jobs where state = 'running'")
    await release(connection, {r["id"]: r["attempt_id"] for r in running}, outcome="released", why="shut down")


async def test_a_step_has_its_own_retries_and_the_others_continue_meanwhile(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """J15: a model-day that fails runs again, and fails in the end; the other models of its day don't wait for it, the
    next day does."""
    called, order = Counter[str](), []
    others_are_done = asyncio.Event()

    async def act(name: str, times: int) -> int:
        order.append(name)
        if name == "1/d":
            others_are_done.set()
        if name == "1/b" and called[name]:
            await others_are_done.wait()  # its second run: the others of its day ran in between
        return await fails(times, called, name)

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        day_1 = [
            Step(f"1/{m}", act, f"1/{m}", {"b": 1, "c": 9}.get(m, 0), max_attempts=3, backoff=0.01) for m in "abcd"
        ]
        return await ctx.steps([day_1, [Step("2/a", act, "2/a", 0)]], at_once=2)

    job_id = await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert called == {"1/a": 1, "1/b": 2, "1/c": 3, "1/d": 1, "2/a": 1}
    assert order[-1] == "2/a"
    runs = {r["name"]: (r["state"], r["attempts"]) for r in await connection.fetch("select * from reactor.steps")}
    assert runs == {
        "1/a": ("completed", 1),
        "1/b": ("completed", 2),
        "1/c": ("failed", 3),
        "1/d": ("completed", 1),
        "2/a": ("completed", 1),
    }
    failed = await step(connection, "1/c")
    assert failed["error"].startswith("ValueError: run 3")
    assert (failed["max_attempts"], failed["run_after"]) == (3, None)
    assert (await row(job_id))["attempts"] == 1, "the job was charged for a step"
    assert await counts(connection) == {
        "total": 5,
        "pending": 0,
        "running": 0,
        "completed": 4,
        "failed": 1,
        "skipped": 0,
        "current": None,
    }


async def test_a_step_that_waits_for_its_next_run_is_shown_as_waiting(
    database: str, registry: Registry, connection: Connection, running: Running
) -> None:
    """J4: pending, with the error of its last run and the time of the next one; it occupies no place of its group."""

    async def act(name: str) -> None:
        if name == "a":
            raise ValueError("not yet")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(n, act, n, max_attempts=2, backoff=3600) for n in "abc"]], at_once=1)

    await insert(connection)
    async with running():

        async def others_are_done() -> bool:
            return (await step(connection, "c")).get("state") == "completed"

        await until(others_are_done)
        waiting = await step(connection)
        assert (waiting["state"], waiting["attempts"], waiting["max_attempts"]) == ("pending", 1, 2)
        assert waiting["error"].startswith("ValueError: not yet")
        assert waiting["run_after"] - waiting["started_at"] > waiting["run_after"].resolution * 3_000_000_000
        assert 0 <= waiting["ran_seconds"] < 20
        found = await counts(connection)
        assert (found["completed"], found["pending"], found["running"]) == (2, 1, 0)


async def test_runs_of_an_earlier_attempt_count(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """J15: after a shutdown in the pause between two runs, the next attempt of the job waits for the rest of the pause,
    and the step has the runs that are left."""
    called = Counter[str]()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", fails, 9, called, "a", max_attempts=3, backoff=3600)]])

    job_id = await insert(connection)
    async with run(database, registry):

        async def waits() -> bool:
            return (await step(connection)).get("run_after") is not None

        await until(waits)
    await release_all(connection)
    assert await has_state(row, job_id, "pending")
    before = await step(connection)
    async with run(database, registry):
        await until(lambda: has_state(row, job_id, "running"))

        async def is_planned() -> bool:
            return bool((await step(connection))["changed_xid"] != before["changed_xid"])

        await until(is_planned)
        assert called["a"] == 1, "it did not wait"
        after = await step(connection)
        assert {n: after[n] for n in ("state", "attempts", "run_after", "error")} == {
            n: before[n] for n in ("state", "attempts", "run_after", "error")
        }
    await release_all(connection)
    await connection.execute("update reactor.steps set run_after = clock_timestamp()")
    async with run(database, registry):

        async def has_failed_again() -> bool:
            return bool((await step(connection))["attempts"] == 2)

        await until(has_failed_again)
    assert called["a"] == 2


async def test_an_operators_retry_gives_a_step_all_of_its_runs_again(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    called = Counter[str]()

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", fails, 3, called, "a", max_attempts=2, backoff=0)]])

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    assert (await step(connection))["attempts"] == 2
    await connection.execute("select from reactor.retry(array[$1::bigint])", job_id)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert called["a"] == 4
    assert ((await step(connection))["attempts"], (await step(connection))["error"]) == (2, None)


@pytest.mark.parametrize(
    ("error", "runs"),
    [(Fail("for good"), 1), (Retry("soon", after=0), 3), (ValueError("bad"), 3), (SystemExit(2), 3)],
    ids=["Fail", "Retry", "an exception", "SystemExit"],
)
async def test_what_a_step_raises_decides_whether_it_runs_again(
    database: str, registry: Registry, connection: Connection, error: BaseException, runs: int
) -> None:
    called = Counter[str]()

    async def act() -> None:
        called["a"] += 1
        raise error

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", act)]], max_attempts=3, backoff=0)

    await insert(connection)
    await run_until_idle(database, registry)
    assert called["a"] == runs
    assert (await step(connection))["state"] == "failed"


async def test_a_step_that_asks_for_no_time_at_all_runs_again_at_once(
    database: str, registry: Registry, connection: Connection
) -> None:
    called = Counter[str]()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", fails, 1, called, "a", Retry(after=float("nan")), max_attempts=2)]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}


async def test_a_snooze_of_a_step_is_not_charged(database: str, registry: Registry, connection: Connection) -> None:
    called = Counter[str]()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", fails, 3, called, "a", Snooze(0, "not yet"))]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert called["a"] == 4
    assert (await step(connection))["attempts"] == 1


async def test_a_wrong_backoff_fails_the_step_and_names_both_errors(
    database: str, registry: Registry, connection: Connection
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        step = Step("a", fails, 9, Counter[str](), "a", max_attempts=3, backoff=lambda run, error: run / 0)
        return await ctx.steps([[step]])

    await insert(connection)
    await run_until_idle(database, registry)
    error = (await step(connection))["error"]
    assert "ValueError: run 1" in error
    assert "ZeroDivisionError" in error


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "plain"])
async def test_a_single_step_is_retried_before_its_error_is_raised(
    database: str, registry: Registry, connection: Connection, in_thread: bool
) -> None:
    called, raised = Counter[str](), []

    def act(name: str, times: int) -> int:
        called[name] += 1
        if called[name] <= times:
            raise ValueError(f"run {called[name]}")
        return called[name]

    async def work(job: Job, ctx: Context) -> dict[str, int]:
        try:
            await ctx.step("never", act, "never", 9, max_attempts=3, backoff=0.01)
        except ValueError as error:
            raised.append(str(error))
        return {"runs": await ctx.step("third", act, "third", 2, max_attempts=3, backoff=0.01)}

    def work_in_thread(job: Job, ctx: SyncContext) -> dict[str, int]:
        try:
            ctx.step("never", act, "never", 9, max_attempts=3, backoff=0.01)
        except ValueError as error:
            raised.append(str(error))
        return {"runs": ctx.step("third", act, "third", 2, max_attempts=3, backoff=0.01)}

    registry.register("work")(work_in_thread if in_thread else work)
    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert raised == ["run 3"]
    assert called == {"never": 3, "third": 3}
    assert await connection.fetchval("select result from reactor.jobs") == '{"runs": 3}'
    assert (await step(connection, "never"))["attempts"] == 3


async def test_a_retry_that_a_single_step_asks_for_postpones_the_job_after_its_last_run(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    called = Counter[str]()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await ctx.step("a", fails, 3, called, "a", Retry("not yet", after=0), max_attempts=2)

    job_id = await insert(connection)
    assert await run_until_idle(database, registry, skip_delays=True) == {JobState.PENDING: 1, JobState.COMPLETED: 1}
    assert called["a"] == 4
    assert (await row(job_id))["attempts"] == 2
    assert (await step(connection))["attempts"] == 2


@pytest.mark.parametrize("end", ["completed", "failed", "undone"])
async def test_counts_agree_with_steps_in_a_transaction(
    database: str, registry: Registry, connection: Connection, end: str
) -> None:
    """J4: they complete with the job's commit, or not at all. The start of a short step is never written."""

    async def act() -> None:
        if end == "failed":
            raise ValueError

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction():
            await ctx.steps([[Step(name, fails, 0, Counter[str](), name) for name in "ab"]], at_once=1)
            await ctx.steps([[Step("c", act)]])
        if end == "undone":
            raise RuntimeError("undone")

    await insert(connection)
    await run_until_idle(database, registry)
    found = await counts(connection)
    expected = {"completed": ("completed", 3), "failed": ("completed", 2), "undone": ("pending", 3)}
    state, number = expected[end]
    assert (found[state], found["running"], found["total"]) == (number, 0, 3)


# Timeouts


@pytest.mark.parametrize("in_plan", [True, False], ids=["in a plan", "single"])
async def test_a_step_that_takes_too_long_is_cancelled_and_runs_again(
    database: str, registry: Registry, connection: Connection, in_plan: bool
) -> None:
    called, cancelled = Counter[str](), []

    async def act() -> str:
        called["a"] += 1
        if called["a"] == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append("a")
                raise
        return "done"

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Any:
        options: Any = {"max_attempts": 2, "backoff": 0, "timeout_seconds": 0.2}
        if in_plan:
            return await ctx.steps([[Step("a", act, **options), Step("b", fails, 0, called, "b")]])
        return {"a": await ctx.step("a", act, **options)}

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert cancelled == ["a"]
    assert ((await step(connection))["attempts"], (await step(connection))["result"]) == (2, '"done"')


async def test_a_timeout_is_named_and_leaves_the_transaction_usable(
    database: str, registry: Registry, connection: Connection
) -> None:
    """What the step did in the transaction is undone, in the middle of a query too."""
    await connection.execute("create table data (name text)")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as transaction:
            await transaction.execute("insert into data values ('before')")

            async def act() -> None:
                await transaction.execute("insert into data values ('undone')")
                await transaction.execute("select pg_sleep(3600)")

            with pytest.raises(TimeoutError):
                await ctx.step("a", act, timeout_seconds=0.2)
            await transaction.execute("insert into data values ('after')")

    await insert(connection)
    await run_until_idle(database, registry)
    assert (await step(connection))["error"].startswith("TimeoutError: The step did not end within 0.2 s.")
    # The only step failed, and so did the job: its transaction is rolled back as a whole.
    assert await connection.fetchval("select state from reactor.jobs") == "failed"

    @registry.register("keeps")
    async def keeps(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as transaction:
            with pytest.raises(TimeoutError):
                await ctx.step("a", transaction.execute, "select pg_sleep(3600)", timeout_seconds=0.2)
            await ctx.step("b", transaction.execute, "insert into data values ('kept')")

    await insert(connection, "keeps")
    await run_until_idle(database, registry)
    assert [r["name"] for r in await connection.fetch("select name from data")] == ["kept"]


@pytest.mark.parametrize("where", ["own thread", "thread of a step"])
async def test_a_thread_that_takes_too_long_notices_at_its_next_call_of_the_context(
    database: str, registry: Registry, connection: Connection, where: str
) -> None:
    """A thread can't be interrupted; one that returns before it has noticed was in time."""
    called, seen = Counter[str](), []

    def act(ctx: Any) -> str:
        called["a"] += 1
        if called["a"] == 1:
            deadline = time.monotonic() + 20
            while not ctx.cancelled and time.monotonic() < deadline:
                time.sleep(0.01)
            seen.append(ctx.cancelled)
            ctx.check()
        return "done"

    options: Any = {"max_attempts": 2, "backoff": 0, "timeout_seconds": 0.2}

    def work(job: Job, ctx: SyncContext) -> dict[str, Any]:
        returned = {"a": ctx.step("a", act, ctx, **options)}
        ctx.check()
        return returned

    async def work_with_thread(job: Job, ctx: Context) -> dict[str, Any]:
        return {"a": await ctx.step("a", act, ctx, **options)}

    registry.register("work")(work if where == "own thread" else work_with_thread)
    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert seen == [True]
    assert (await step(connection))["attempts"] == 2
    assert await connection.fetchval("select result from reactor.jobs") == '{"a": "done"}'


async def test_the_timeout_of_a_step_does_not_hide_a_cancel(
    database: str, registry: Registry, connection: Connection, running: Running, row: Row
) -> None:
    """A job that is cancelled in the pause between two runs ends at once; its step runs no more."""
    called = Counter[str]()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("a", fails, 9, called, "a")]], max_attempts=9, backoff=3600, timeout_seconds=60)

    job_id = await insert(connection)
    async with running():

        async def waits() -> bool:
            return (await step(connection)).get("run_after") is not None

        await until(waits)
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)

        async def is_released() -> bool:
            return (await row(job_id))["worker_id"] is None

        await until(is_released)
    assert called["a"] == 1
    assert (await step(connection))["state"] == "pending"


async def test_a_thread_that_waits_for_its_next_run_notices_a_cancel(
    database: str, registry: Registry, connection: Connection, running: Running, row: Row
) -> None:
    called = Counter[str]()

    def act() -> None:
        called["a"] += 1
        raise ValueError

    @registry.register("work")
    def work(job: Job, ctx: SyncContext) -> None:
        ctx.step("a", act, max_attempts=9, backoff=3600)

    job_id = await insert(connection)
    async with running():

        async def waits() -> bool:
            return (await step(connection)).get("run_after") is not None

        await until(waits)
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)

        async def is_released() -> bool:
            return (await row(job_id))["worker_id"] is None

        await until(is_released)
    assert called["a"] == 1


@pytest.mark.parametrize(
    "options",
    [{"max_attempts": 0}, {"max_attempts": True}, {"max_attempts": 1.5}, {"timeout_seconds": 0}, {"backoff": -1}],
    ids=str,
)
def test_impossible_options_of_a_step_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StepInvalid, match="'a' can't be used"):
        Step("a", print, **options)


async def test_a_step_that_was_running_when_its_process_died_runs_again_and_is_not_charged(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """J15: only runs that have ended count."""
    pod = await start_pod()
    job_id = await connection.fetchval("insert into reactor.jobs (job_type) values ('simulation') returning id")
    _, _, pid, _ = (await until(lambda: marks("day2/slow")))[0]
    pod.kill(pid)
    await until(lambda: has_state(row, job_id, "completed"))
    assert (await step(connection, "day2/slow"))["attempts"] == 1
    assert await counts(connection) == dict.fromkeys(("pending", "running", "failed", "skipped"), 0) | {
        "total": 6,
        "completed": 6,
        "current": None,
    }
