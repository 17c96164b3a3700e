"""Steps: recorded as they end, run once, failing separately; the job's state is derived from them."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from reactor import Completed, Context, Fail, Job, JobState, Registry, Retry, Skip, Snooze, Step, Summary, SyncContext
from reactor.database.connection import Connection, connect
from reactor.errors import ChainInStep, StepInvalid, TransactionInParallel
from reactor.handlers.attempt import Attempt
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.steps import Planned, Record, StepState, plan_steps, record_steps
from reactor.pod.in_process import Reactor
from reactor.testing import run_until_idle
from tests.support.claim_loops import Running, run
from tests.support.jobs import Row, has_ended, insert
from tests.support.link import link_for
from tests.support.pods import Marks, StartPod
from tests.support.until import until

DAYS = ("day 1", "day 2", "day 3")
MODELS = ("a", "b", "c", "d")


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def steps(connection: Connection, job_id: int = 1) -> dict[str, str]:
    rows = await connection.fetch("select name, state from reactor.steps where job_id = $1 order by position", job_id)
    return {row["name"]: row["state"] for row in rows}


async def is_running(connection: Connection, name: str) -> bool:
    """The start of a step of a plan is written while it runs."""
    return (await steps(connection))[name] == "running"


async def errors(connection: Connection) -> dict[str, str]:
    rows = await connection.fetch("select name, error from reactor.steps where error is not null order by position")
    return {row["name"]: row["error"].partition("\n")[0] for row in rows}


# Groups


async def test_one_failing_model_of_four_over_three_days_is_partial(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """J2, J3, J4: one row per model-day, in the plan's order; the job's state and counts are derived from them."""

    async def run_model(day: str, model: str) -> dict[str, str]:
        if model == "c":
            raise ValueError(f"no data for {day}")
        return {"figures": f"{day} {model}"}

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(f"{day}/{m}", run_model, day, m) for m in MODELS] for day in DAYS])

    job_id = await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    after = await row(job_id)
    assert (after["state"], after["attempts"], after["progress"]) == ("partial", 1, 1)
    assert after["result"] == '{"total": 12, "failed": 3, "skipped": 0, "completed": 9}'
    assert after["status_message"] == "9 of 12 steps completed, 3 failed"
    found = await steps(connection)
    assert list(found) == [f"{day}/{model}" for day in DAYS for model in MODELS]
    assert {name for name, state in found.items() if state == "failed"} == {f"{day}/c" for day in DAYS}
    assert (await errors(connection))["day 2/c"] == "ValueError: no data for day 2"
    assert await connection.fetchval("select result from reactor.steps where name = 'day 3/d'") == (
        '{"figures": "day 3 d"}'
    )
    assert await connection.fetchval("select every(coalesce(started_at <= finished_at, false)) from reactor.steps")
    await connection.execute("delete from reactor.jobs")
    assert await steps(connection) == {}


@pytest.mark.parametrize(
    ("failing", "state"), [([], "completed"), (["a"], "partial"), (["a", "b"], "failed")], ids=["none", "some", "all"]
)
@pytest.mark.parametrize("returned", ["summary", "dict", "nothing"])
async def test_the_jobs_state_is_derived_from_its_steps(
    database: str,
    registry: Registry,
    connection: Connection,
    row: Row,
    failing: list[str],
    state: str,
    returned: str,
) -> None:
    """J3: unless the handler returns an outcome. If all steps failed, the job fails in its first attempt."""

    async def act(name: str) -> None:
        if name in failing:
            raise Fail(f"{name} is broken")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Any:
        summary = await ctx.steps([[Step(name, act, name) for name in "ab"]])
        return {"summary": summary, "dict": {"my": "own"}, "nothing": None}[returned]

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    after = await row(job_id)
    assert after["state"] == state
    if state == "failed":
        assert after["error"] == "None of 2 steps completed.\na: a is broken\nb: b is broken"
    elif returned == "dict":
        assert after["result"] == '{"my": "own"}'
    assert await connection.fetchval("select count(*) from reactor.attempts") == 0


async def test_a_handler_can_override_the_derived_state(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    async def act() -> None:
        raise ValueError("unimportant")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Completed:
        summary = await ctx.steps([[Step("nice to have", act)]])
        assert summary.errors == {"nice to have": "ValueError: unimportant"}
        return Completed({"fine": True})

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    assert (await row(job_id))["state"] == "completed"


async def test_groups_run_in_order_and_their_steps_concurrently(
    database: str, registry: Registry, connection: Connection
) -> None:
    """J5: all steps of a group run at once, and the next group waits for the last of them."""
    running: set[str] = set()
    together: list[set[str]] = []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        barriers = {day: asyncio.Barrier(len(MODELS)) for day in DAYS}

        async def run_model(day: str, model: str) -> None:
            running.add(f"{day}/{model}")
            await barriers[day].wait()  # passed only if all of them run
            together.append(set(running))
            await barriers[day].wait()
            running.discard(f"{day}/{model}")

        return await ctx.steps([[Step(f"{day}/{m}", run_model, day, m) for m in MODELS] for day in DAYS], at_once=99)

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert together == [{f"{day}/{m}" for m in MODELS} for day in DAYS for _ in MODELS]


@pytest.mark.parametrize("at_once", [1, 2, 3])
async def test_at_once_limits_the_number_of_concurrent_steps(
    database: str, registry: Registry, connection: Connection, at_once: int
) -> None:
    """J5: also for plain functions, each in a thread."""
    running, most = 0, 0
    lock, all_there = threading.Lock(), threading.Event()

    def act() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == at_once:
                all_there.set()
        all_there.wait(20)
        time.sleep(0.02)  # for one too many to start
        with lock:
            running -= 1

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(str(n), act) for n in range(8)]], at_once=at_once)

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert most == at_once


async def test_a_step_takes_one_round_trip(database: str, registry: Registry, connection: Connection, row: Row) -> None:
    """With its start, which is not waited for, and the job's progress: a server may be far away."""
    count = 20

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(f"{number}", asyncio.sleep, 0)] for number in range(count)])

    async with link_for(database) as (link, url), run(url, registry):
        for _ in range(2):
            link.round_trips.clear()
            job_id = await insert(connection)
            await until(partial(has_ended, row, job_id))
        # And one each for the plan and the end of the job. A machine that stalls writes a few starts, too.
        assert count < link.round_trips["reactor settle pod-1"] <= count + 10
    assert await connection.fetchval("select every(coalesce(started_at <= finished_at, false)) from reactor.steps")


async def test_clients_see_the_whole_plan_and_its_progress(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """J4: total, completed, failed and the current one, while it runs."""
    seen: dict[str, tuple[dict[str, str], float, str]] = {}

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def act(name: str) -> None:
            if name == "b":
                raise ValueError("b")
            if name == "c":
                await until(lambda: is_running(connection, "c"))
                now = await row(job.id)
                seen["c"] = await steps(connection), now["progress"], now["status_message"]

        return await ctx.steps([[Step(name, act, name)] for name in "abcd"])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert seen["c"] == ({"a": "completed", "b": "failed", "c": "running", "d": "pending"}, 0.5, "c (2 of 4 done)")


async def test_progress_that_the_handler_reports_is_not_overwritten(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def fail() -> None:
            raise ValueError

        await ctx.progress(0.25, "my own words")
        return await ctx.steps([[Step("a", asyncio.sleep, 0), Step("b", fail)]])

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    after = await row(job_id)
    assert (after["progress"], after["status_message"]) == (0.25, "my own words")


# Steps run once


async def test_a_retry_runs_only_steps_that_are_not_completed(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """F9: stored results are returned; a failed step runs again, without its old error."""
    called: list[tuple[int, str]] = []

    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> dict[str, Any]:
        async def act(name: str) -> dict[str, Any]:
            called.append((job.attempts, name))
            if name == "b" and job.attempts == 1:
                raise ValueError("not yet")
            return {"by": job.attempts, "odd": (1, 2)}

        summary = await ctx.steps([[Step(name, act, name) for name in "abc"]], at_once=1)
        if summary.errors:
            raise Retry("some failed", after=0)
        return summary.results

    job_id = await insert(connection)
    await run_until_idle(database, registry, skip_delays=True)
    assert called == [(1, "a"), (1, "b"), (1, "c"), (2, "b")]
    assert (await row(job_id))["state"] == "completed"
    assert (await row(job_id))["result"] == (
        '{"a": {"by": 1, "odd": [1, 2]}, "b": {"by": 2, "odd": [1, 2]}, "c": {"by": 1, "odd": [1, 2]}}'
    )
    assert await errors(connection) == {}


async def test_an_operators_retry_runs_failed_steps_and_not_completed_ones(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """J3: `reactor retry` of a partial job."""
    called: list[str] = []
    broken = {"b"}

    async def act(name: str) -> None:
        called.append(name)
        if name in broken:
            raise ValueError(name)

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(name, act, name)] for name in "abc"])

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    broken.clear()
    await connection.execute("select from reactor.retry(array[$1::bigint])", job_id)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert called == ["a", "b", "c", "b"]
    assert (await row(job_id))["result"] == '{"total": 3, "failed": 0, "skipped": 0, "completed": 3}'


async def test_steps_completed_before_a_kill_are_not_run_again(
    start_pod: StartPod, connection: Connection, row: Row, marks: Marks
) -> None:
    """J5, guarantee 3: kill -9 of the worker process, in the middle of a group."""
    pod = await start_pod()
    job_id = await connection.fetchval("insert into reactor.jobs (job_type) values ('simulation') returning id")
    _, _, pid, _ = (await until(lambda: marks("day2/slow")))[0]

    async def others_of_day_2_are_done() -> bool:
        return (await steps(connection)).get("day2/quick") == "completed"

    await until(others_of_day_2_are_done)
    pod.kill(pid)

    async def completed() -> bool:
        return bool((await row(job_id))["state"] == "completed")

    await until(completed)
    counts = {f"{day}/{m}": len(marks(f"{day}/{m}")) for day in ("day1", "day2", "day3") for m in ("quick", "slow")}
    assert counts.pop("day2/slow") == 2
    assert set(counts.values()) == {1}
    assert set((await steps(connection)).values()) == {"completed"}
    assert (await row(job_id))["result"] == '{"total": 6, "failed": 0, "skipped": 0, "completed": 6}'


async def test_single_steps_are_run_once(database: str, registry: Registry, connection: Connection, row: Row) -> None:
    """F9: the error is raised in the handler, which may catch it; here it ends the attempt."""
    called: list[str] = []

    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> dict[str, Any]:
        async def read() -> int:
            called.append("read")
            return 3

        def count(n: int) -> list[int]:
            called.append("count")
            if job.attempts == 1:
                raise ValueError("at first")
            return list(range(n))

        n = await ctx.step("read", read)
        return {"rows": await ctx.step("count", count, n)}

    job_id = await insert(connection)
    await run_until_idle(database, registry, skip_delays=True)
    assert called == ["read", "count", "count"]
    assert (await row(job_id))["result"] == '{"rows": [0, 1, 2]}'
    assert (await row(job_id))["status_message"] == "2 of 2 steps completed"


async def test_a_failure_that_the_handler_catches_makes_the_job_partial(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await ctx.step("compact", asyncio.sleep, 0)
        with pytest.raises(ZeroDivisionError):
            await ctx.step("expire", lambda: 1 // 0)

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    assert (await row(job_id))["state"] == "partial"
    assert await steps(connection) == {"compact": "completed", "expire": "failed"}


@pytest.mark.parametrize("wish", [Snooze(0), Retry(after=0)], ids=["snooze", "retry"])
async def test_a_single_step_can_snooze_the_job(
    database: str, registry: Registry, connection: Connection, row: Row, wish: Exception
) -> None:
    tries: list[dict[str, str]] = []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def fetch() -> None:
            if not tries:
                tries.append(await steps(connection))
                raise wish

        await ctx.step("fetch", fetch)

    await insert(connection)
    await run_until_idle(database, registry, skip_delays=True)
    assert tries == [{"fetch": "running"}]
    assert await steps(connection) == {"fetch": "completed"}


async def test_a_step_can_have_nothing_to_do(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    async def act() -> None:
        raise Skip("no snow in July")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        assert await ctx.step("alone", act) is None
        return await ctx.steps([[Step("in a group", act), Step("other", asyncio.sleep, 0)]])

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    assert (await row(job_id))["state"] == "completed"
    assert await steps(connection) == {"alone": "skipped", "in a group": "skipped", "other": "completed"}
    assert (await errors(connection))["alone"] == "no snow in July"


async def test_steps_missing_from_a_new_plan_are_skipped(
    database: str, registry: Registry, connection: Connection
) -> None:
    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        def fail() -> None:
            raise ValueError("old")

        if job.attempts == 1:
            await ctx.steps([[Step("old", fail), Step("kept", asyncio.sleep, 0)]])
            raise ValueError
        await ctx.step("new", asyncio.sleep, 0)

    await insert(connection)
    assert await run_until_idle(database, registry, skip_delays=True) == {JobState.PENDING: 1, JobState.COMPLETED: 1}
    assert await steps(connection) == {"old": "skipped", "new": "completed", "kept": "completed"}


# Invalid steps


@pytest.mark.parametrize("name", ["", "x" * 501, "a\nb", "a\0b", "\ud800", 7])
async def test_an_unreadable_step_name_is_refused(
    database: str, registry: Registry, connection: Connection, name: Any
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        with pytest.raises(StepInvalid):
            await ctx.step(name, asyncio.sleep, 0)
        with pytest.raises(StepInvalid):
            await ctx.steps([[Step("fine", asyncio.sleep, 0), Step(name, asyncio.sleep, 0)]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert await steps(connection) == {}


async def test_a_name_used_twice_is_refused(database: str, registry: Registry, connection: Connection) -> None:
    """J2: in one plan, or by a later step; nothing of that plan is written."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await ctx.step("first", asyncio.sleep, 0)
        with pytest.raises(StepInvalid, match="'first' can't be used: it is planned twice"):
            await ctx.step("first", asyncio.sleep, 0)
        with pytest.raises(StepInvalid, match="'b'"):
            await ctx.steps([[Step("a", asyncio.sleep, 0), Step("b", asyncio.sleep, 0)], [Step("b", asyncio.sleep, 0)]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert await steps(connection) == {"first": "completed"}


@pytest.mark.parametrize(
    "result",
    [float("nan"), "\0", object(), {"x": "\ud800"}],
    ids=lambda value: type(value).__name__ if type(value) is object else repr(value),
)
async def test_a_result_that_cant_be_stored_fails_its_step_only(
    database: str, registry: Registry, connection: Connection, result: Any
) -> None:
    async def act(returns: Any) -> Any:
        return returns

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("odd", act, result), Step("even", act, {"fine": None})]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await steps(connection) == {"odd": "failed", "even": "completed"}
    assert "its result can't be stored" in (await errors(connection))["odd"]


async def test_a_result_that_only_the_database_refuses_fails_only_its_step(
    database: str, registry: Registry, connection: Connection
) -> None:
    """Also in a batch with others', which are written."""
    await connection.execute("alter table reactor.steps add check (result is null or result <> '\"bad\"')")

    async def act(returns: str) -> str:
        return returns

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("odd", act, "bad"), *(Step(f"{n}", act, "good") for n in range(5))]], at_once=6)

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert (await steps(connection)).pop("odd") == "failed"
    assert list((await steps(connection)).values()).count("completed") == 5


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()], ids=repr
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_other_steps_run_after_any_exception_of_one(
    database: str, registry: Registry, connection: Connection, error: BaseException, in_thread: bool
) -> None:
    async def act() -> None:
        raise error

    def act_in_thread() -> None:
        raise error

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        odd = Step("odd", act_in_thread if in_thread else act)
        return await ctx.steps([[odd, Step("even", asyncio.sleep, 0)], [Step("next", asyncio.sleep, 0)]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await steps(connection) == {"odd": "failed", "even": "completed", "next": "completed"}


# The fence


@pytest.fixture
async def claimed(connection: Connection, worker: Worker) -> Job:
    job = await claim_one(connection, worker, await insert(connection))
    assert job
    return job


async def test_a_stale_attempt_writes_no_step(connection: Connection, claimed: Job) -> None:
    """Guarantee 3: neither a plan nor a state. Of two attempts in one batch, only the current one writes."""
    stale, own = uuid4(), claimed.attempt_id
    assert not await plan_steps(connection, claimed.id, stale, {"a": Planned(0, 1)}, started=False)
    assert await steps(connection) == {}
    assert (
        await plan_steps(connection, claimed.id, own, {"a": Planned(0, 1), "b": Planned(1, 1)}, started=False)
        is not None
    )
    assert not await plan_steps(connection, claimed.id, stale, {"a": Planned(5, 1)}, started=True)
    records = [
        Record(claimed.id, stale, "a", StepState.FAILED),
        Record(claimed.id, own, "b", StepState.COMPLETED, '{"x": 1}'),
    ]
    assert await record_steps(connection, records) == {own}
    assert await steps(connection) == {"a": "pending", "b": "completed"}
    assert await plan_steps(connection, claimed.id, own, {"b": Planned(7, 1)}, started=True) is not None
    assert await steps(connection) == {"a": "pending", "b": "completed"}, "a completed step was started again"


@pytest.mark.parametrize("write", ["plan", "record"])
async def test_a_step_waits_for_a_concurrent_cancel(
    database: str, connection: Connection, claimed: Job, write: str
) -> None:
    """Guarantee 3: the job's row is locked. Otherwise the step could be written after the cancel."""
    await plan_steps(connection, claimed.id, claimed.attempt_id, {"a": Planned(0, 1)}, started=False)
    async with connect(database, name="canceller") as canceller, connect(database, name="writer") as writer:
        async with canceller.transaction():
            await canceller.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", claimed.id)
            if write == "plan":
                writing = asyncio.create_task(
                    plan_steps(
                        writer, claimed.id, claimed.attempt_id, {"a": Planned(0, 1), "b": Planned(1, 1)}, started=True
                    )
                )
            else:
                record = Record(claimed.id, claimed.attempt_id, "a", StepState.COMPLETED)
                writing = asyncio.create_task(record_steps(writer, [record]))  # type: ignore[arg-type]
            await until(lambda: _waits_for_a_lock(connection, "writer"))
        assert not await writing
    assert await steps(connection) == {"a": "pending"}


async def _waits_for_a_lock(connection: Connection, name: str) -> bool:
    waits = "select exists (select from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock')"
    return bool(await connection.fetchval(waits, name))


@pytest.mark.parametrize("at_once", [1, 4])
async def test_a_handler_whose_job_was_taken_stops_at_its_next_step(
    database: str, registry: Registry, connection: Connection, at_once: int
) -> None:
    """Guarantee 3, F9: no notification has arrived; its write changes nothing and stops it."""
    called: list[str] = []
    ended: list[BaseException] = []
    taken = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def act(name: str) -> None:
            called.append(name)
            if len(called) == 1:
                # As a sweep of another pod does, without a notification.
                await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid()")
                taken.set()
            await taken.wait()

        try:
            await ctx.steps([[Step(f"{g}/{n}", act, f"{g}/{n}") for n in range(4)] for g in range(3)], at_once=at_once)
        except BaseException as error:
            ended.append(error)
            raise

    await insert(connection)
    await run_until_idle(database, registry)
    assert called == ["0/0"] or (at_once > 1 and set(called) <= {f"0/{n}" for n in range(4)})
    assert isinstance(ended[0], asyncio.CancelledError)
    assert "completed" not in (await steps(connection)).values()


async def test_a_handler_whose_job_was_taken_is_stopped_by_the_start_of_a_long_step(
    connection: Connection, registry: Registry, running: Running
) -> None:
    """Guarantee 3: the start is written while the step runs, and stops it if the job is not the attempt's any more."""
    ended: list[BaseException] = []

    async def act() -> None:
        # As a sweep of another pod does, without a notification.
        await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid()")
        try:
            await asyncio.sleep(60)
        except BaseException as error:
            ended.append(error)
            raise

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step("long", act)]])

    async with running(reconcile_seconds=600):
        await insert(connection)
        await until(lambda: ended)
    assert isinstance(ended[0], asyncio.CancelledError)


async def test_the_start_of_a_step_is_confirmed_first_if_the_last_answer_is_old(
    database: str, registry: Registry, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9: a job that was taken a while ago starts no further step, also if no notification has arrived."""
    called: list[str] = []
    monkeypatch.setattr(Attempt, "held_lately_seconds", 0.0)

    async def act(name: str) -> None:
        called.append(name)
        if name == "b":
            await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid()")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction():  # so that no end of a step is written before the start of the next one
            await ctx.steps([[Step(name, act, name)] for name in "abc"])

    await insert(connection)
    await run_until_idle(database, registry)
    assert called == ["a", "b"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_cancel_is_honoured_between_steps(
    database: str, registry: Registry, connection: Connection, row: Row, kind: str
) -> None:
    """F9: the running step is pending again, for a retry."""
    started = threading.Event()
    let_go = threading.Event()
    called: list[str] = []

    async def act(name: str) -> None:
        called.append(name)
        if name == "b":
            started.set()
            await asyncio.sleep(60)

    def act_in_thread(name: str) -> None:
        called.append(name)
        if name == "b":
            started.set()
            let_go.wait(30)

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(n, act if kind == "async" else act_in_thread, n)] for n in "abc"])

    async with Reactor(database, registry=registry) as reactor:
        job_id = await insert(connection)
        await until(started.is_set)
        await until(lambda: is_running(connection, "b"))
        await connection.execute("select from reactor.cancel(array[$1::bigint], 'by hand')", job_id)
        let_go.set()
        await until(lambda: reactor.counts.stale == 1)
    assert called == ["a", "b"]
    assert await steps(connection) == {"a": "completed", "b": "pending", "c": "pending"}
    assert await connection.fetchval("select started_at is not null from reactor.steps where name = 'b'")


async def test_a_shutdown_is_honoured_between_steps(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """F9: the next pod continues where this one stopped, and no attempt is charged."""
    started = asyncio.Event()
    called: list[str] = []

    async def act(name: str) -> None:
        called.append(name)
        if name == "b" and not started.is_set():
            started.set()
            await asyncio.sleep(60)

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        return await ctx.steps([[Step(name, act, name)] for name in "abc"])

    async with Reactor(database, registry=registry, grace_seconds=0):
        job_id = await insert(connection)
        await started.wait()
    assert await steps(connection) == {"a": "completed", "b": "pending", "c": "pending"}
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert called == ["a", "b", "b", "c"]
    assert (await row(job_id))["attempts"] == 1


async def test_a_producers_lock_on_one_job_does_not_delay_progress_of_others(
    database: str, registry: Registry, connection: Connection
) -> None:
    """The transaction that inserts a dependant of a running job stays open for a while."""
    reports: list[int] = []
    locked_now = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await locked_now.wait()
        for tenth in range(1, 4):
            await ctx.progress(tenth / 10, f"{tenth} of 3")
            reports.append(job.id)

    async with Reactor(database, registry=registry):
        locked, other = await insert(connection), await insert(connection)
        async with connect(database, name="producer") as producer:
            running = "select count(*) = 2 from reactor.jobs where state = 'running'"
            await until(lambda: producer.fetchval(running))
            async with producer.transaction():
                waiting = await insert(producer)
                await producer.execute(
                    "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", waiting, locked
                )
                await producer.execute("set constraints all immediate")
                locked_now.set()
                await until(lambda: reports.count(other) == 3)
                assert locked not in reports
        await until(lambda: reports.count(locked) == 3)
        await until(lambda: connection.fetchval("select bool_and(state = 'completed') from reactor.jobs"))


async def test_a_lock_on_one_job_does_not_delay_steps_of_others(
    database: str, registry: Registry, connection: Connection, row: Row
) -> None:
    """The step is written when the lock is released."""
    may_end: dict[int, asyncio.Event] = {}

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        may_end[job.id] = asyncio.Event()
        await ctx.step("a", may_end[job.id].wait)
        await ctx.progress(0.5, "half")
        await ctx.step("b", asyncio.sleep, 0)

    async with Reactor(database, registry=registry):
        locked, other = await insert(connection), await insert(connection)

        async def both_have_begun() -> bool:
            return bool(await steps(connection, locked) and await steps(connection, other))

        await until(both_have_begun)
        async with connection.transaction():
            await connection.execute("select from reactor.jobs where id = $1 for update", locked)
            may_end[locked].set()
            may_end[other].set()
            async with connect(database, name="looker") as looker:

                async def other_is_done() -> bool:
                    state = await looker.fetchval("select state from reactor.jobs where id = $1", other)
                    return bool(state == "completed")

                await until(other_is_done)
                assert (await steps(looker, locked)) == {"a": "running"}

        async def locked_is_done() -> bool:
            return bool((await row(locked))["state"] == "completed")

        await until(locked_is_done)


# Steps in the transaction


@pytest.fixture
async def ledger(connection: Connection) -> Callable[[], Awaitable[list[str]]]:
    await connection.execute("create table ledger (entry text)")

    async def entries() -> list[str]:
        return [r["entry"] for r in await connection.fetch("select entry from ledger order by entry")]

    return entries


async def test_data_and_steps_are_one_commit(
    database: str, registry: Registry, connection: Connection, ledger: Callable[[], Awaitable[list[str]]]
) -> None:
    """Guarantee 4: a step is completed when its data is committed, and not if the data is rolled back."""
    seen: list[dict[str, str]] = []

    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        async def load(name: str) -> None:
            async with ctx.transaction() as own:
                await own.execute("insert into ledger values ($1)", name)

        await ctx.step("before", asyncio.sleep, 0)
        await ctx.steps([[Step("a", load, "a"), Step("b", load, "b")]], at_once=1)
        await until(lambda: is_running(connection, "b"))
        seen.append(await steps(connection))
        if job.attempts == 1:
            raise ValueError("too bad")

    await insert(connection)
    await run_until_idle(database, registry, skip_delays=True)
    assert seen == [{"before": "completed", "a": "running", "b": "running"}] * 2
    assert set((await steps(connection)).values()) == {"completed"}
    assert await ledger() == ["a", "b"]


async def test_steps_that_were_rolled_back_are_run_again(
    database: str, registry: Registry, connection: Connection, ledger: Callable[[], Awaitable[list[str]]], row: Row
) -> None:
    """Guarantee 4, as other sessions see it between two attempts."""

    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:

            async def load() -> None:
                await own.execute("insert into ledger values ('a')")

            await ctx.step("a", load)
        raise Fail("too bad")

    job_id = await insert(connection)
    await run_until_idle(database, registry)
    assert (await row(job_id))["state"] == "failed"
    assert await steps(connection) == {"a": "pending"}
    assert await ledger() == []


@pytest.mark.parametrize("opened", ["before", "by the step"])
async def test_the_data_of_a_failed_step_is_rolled_back(
    database: str,
    registry: Registry,
    connection: Connection,
    ledger: Callable[[], Awaitable[list[str]]],
    opened: str,
) -> None:
    """Guarantee 4: only its own data, including that of blocks that it left before it failed."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def load(name: str) -> Any:
            async with ctx.transaction() as own:
                await own.execute("insert into ledger values ($1)", name)
            if name == "bad":
                raise ValueError("after the block")
            return object() if name == "odd" else None

        if opened == "before":
            async with ctx.transaction():
                pass
        names = ["bad", "odd", "good"]
        return await ctx.steps([[Step(name, load, name)] for name in names])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await steps(connection) == {"bad": "failed", "odd": "failed", "good": "completed"}
    assert await ledger() == ["good"]


async def test_a_step_in_a_block_that_is_rolled_back_is_rolled_back(
    database: str, registry: Registry, connection: Connection, ledger: Callable[[], Awaitable[list[str]]]
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:
            await ctx.step("kept", own.execute, "insert into ledger values ('kept')")
        with pytest.raises(ZeroDivisionError):
            async with ctx.transaction() as own:
                await ctx.step("undone", own.execute, "insert into ledger values ('undone')")
                raise ZeroDivisionError

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.PARTIAL: 1}
    assert await steps(connection) == {"kept": "completed", "undone": "failed"}
    assert "ZeroDivisionError" in (await errors(connection))["undone"]
    assert await ledger() == ["kept"]


async def test_a_stale_attempts_transaction_leaves_no_step(
    database: str, registry: Registry, connection: Connection, ledger: Callable[[], Awaitable[list[str]]]
) -> None:
    """Guarantees 3 and 4."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction() as own:
            await ctx.step("a", own.execute, "insert into ledger values ('a')")
            await connection.execute("update reactor.jobs set attempt_id = gen_random_uuid()")

    await insert(connection)
    await run_until_idle(database, registry)
    assert await steps(connection) == {"a": "running"}, "it is the new attempt's now"
    assert await ledger() == []


async def test_a_deadlock_in_a_step_runs_the_handler_again(
    database: str, registry: Registry, connection: Connection, ledger: Callable[[], Awaitable[list[str]]], row: Row
) -> None:
    """The step does not fail, and no attempt is charged."""
    calls = 0

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def load() -> None:
            nonlocal calls
            calls += 1
            async with ctx.transaction() as own:
                await own.execute("insert into ledger values ('a')")
                if calls == 1:
                    raise asyncpg.DeadlockDetectedError

        return await ctx.steps([[Step("a", load)]])

    job_id = await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}
    assert (calls, (await row(job_id))["attempts"]) == (2, 1)
    assert await ledger() == ["a"]


async def test_parallel_steps_cant_share_the_transaction(
    database: str, registry: Registry, connection: Connection
) -> None:
    """It is one connection; the error says what to do instead."""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> Summary:
        async def load() -> None:
            with pytest.raises(TransactionInParallel, match="at_once=1"):
                async with ctx.transaction():
                    pass

        return await ctx.steps([[Step("a", load), Step("b", load)]])

    await insert(connection)
    assert await run_until_idle(database, registry) == {JobState.COMPLETED: 1}


async def test_children_of_completed_steps_are_not_lost(
    database: str, registry: Registry, connection: Connection
) -> None:
    """A completed step is not called in a later attempt. Its children are created with the job's end, or refused."""
    attempts = 0

    @registry.register("work", backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        nonlocal attempts
        attempts += 1

        async def refused() -> None:
            with pytest.raises(ChainInStep, match="Call ctx.chain in the handler"):
                await ctx.chain("child")

        async def chains(fails: bool = False) -> None:
            async with ctx.transaction():
                await ctx.chain("child", {"fails": fails})
            if fails:
                raise ValueError("no")

        await ctx.step("alone", refused)
        await ctx.steps([[Step("one", refused), Step("two", refused)]])
        with pytest.raises(ValueError, match="no"):
            await ctx.step("undone", chains, True)
        await ctx.step("in a transaction", chains)
        if attempts == 1:
            raise ValueError("not yet")

    @registry.register("plain")
    def plain(job: Job, ctx: SyncContext) -> None:
        def refused() -> None:
            with pytest.raises(ChainInStep):
                ctx.chain("child")

        ctx.step("alone", refused)
        ctx.chain("child", {"of": "plain"})

    await insert(connection, max_attempts=2)
    await connection.execute("insert into reactor.jobs (job_type) values ('plain')")
    await run_until_idle(database, registry)
    assert attempts == 2
    children = await connection.fetch("select payload from reactor.jobs where job_type = 'child'")
    assert sorted(child["payload"] for child in children) == ['{"fails": false}', '{"of": "plain"}']


# Steps in threads


async def test_a_plain_handler_has_steps_too(
    database: str, registry: Registry, connection: Connection, row: Row, ledger: Callable[[], Awaitable[list[str]]]
) -> None:
    """A single step runs in the handler's thread, the steps of a plan in threads of their own."""
    called: list[str] = []

    @registry.register("work", backoff=0)
    def work(job: Job, ctx: SyncContext) -> dict[str, Any]:
        own = threading.get_ident()

        def act(name: str) -> Any:
            called.append(name)
            if name == "fails" and job.attempts == 1:
                raise ValueError
            return threading.get_ident() == own

        def load() -> str:
            with ctx.transaction() as connection:
                return connection.execute("insert into ledger values ('x')")

        def skip() -> None:
            raise Skip

        results = [ctx.step("first", act, "first"), ctx.step("none", skip)]
        results.append(ctx.step("fails", act, "fails"))
        results.append(ctx.steps([[Step("p", act, "p"), Step("q", act, "q")]]).results["p"])
        return {"results": [*results, ctx.step("load", load)]}

    job_id = await insert(connection)
    await run_until_idle(database, registry, skip_delays=True)
    assert sorted(called) == ["fails", "fails", "first", "p", "q"]
    after = await row(job_id)
    assert after["result"] == '{"results": [true, null, true, false, "INSERT 0 1"]}'
    assert await steps(connection) == dict.fromkeys(["first", "fails", "p", "q", "load"], "completed") | {
        "none": "skipped"
    }
    assert await ledger() == ["x"]


async def test_with_one_slot_a_plan_of_a_plain_handler_runs(
    database: str, registry: Registry, connection: Connection
) -> None:
    """Its threads are not those of the handlers, which may all be waiting for their steps."""

    @registry.register("work")
    def work(job: Job, ctx: SyncContext) -> Summary:
        return ctx.steps([[Step(name, time.sleep, 0.01) for name in "abc"]])

    await insert(connection)
    assert await run_until_idle(database, registry, concurrency=1) == {JobState.COMPLETED: 1}
