"""Running a handler: its return value, exception or timeout decides the state of its job."""

import asyncio
import contextvars
import json
import sys
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field

from reactor import Cancelled, Completed, Context, Fail, Job, Partial, Registry, Retry, Snooze, SyncContext, submit
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.handlers.attempt import Phase, Stop
from reactor.handlers.services import Services
from reactor.job import JobState
from reactor.lifecycle.claim import claim_one
from reactor.lifecycle.lease import Worker
from reactor.testing import run_until_idle
from reactor.worker.execute import End, Execution
from reactor.worker.slots import Slots, Timings
from tests.support.claim_loops import Running
from tests.support.logs import Events
from tests.support.until import until


class Bench:
    """Submits jobs of the type `work` and runs due jobs."""

    def __init__(self, url: str, connection: Connection, registry: Registry) -> None:
        self.url = url
        self.connection = connection
        self.registry = registry

    async def submit(self, payload: dict[str, Any] | None = None, job_type: str = "work", **options: Any) -> int:
        return (await submit(self.connection, job_type, payload, **options)).id

    async def run(self, **options: Any) -> dict[JobState, int]:
        async with asyncio.timeout(20):
            return await run_until_idle(self.url, self.registry, **options)

    async def row(self, job_id: int) -> dict[str, Any]:
        found = await self.connection.fetchrow("select * from reactor.jobs where id = $1", job_id)
        assert found
        return dict(found)

    async def ran(self, payload: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Submits a job, runs all due jobs, and returns the row of the new one."""
        job_id = await self.submit(payload, **options)
        await self.run()
        return await self.row(job_id)


@pytest.fixture
def bench(database: str, connection: Connection, registry: Registry) -> Bench:
    return Bench(database, connection, registry)


# Jobs that can't be run


async def test_a_job_without_a_handler_is_logged_and_not_claimed(
    bench: Bench, registry: Registry, running: Running, events: Events
) -> None:
    """D2: also by run_job, and a row without a type (D14)."""

    @registry.register("work")
    async def work() -> None: ...

    unknown = await bench.submit(job_type="unheard.of")
    adopted = await bench.connection.fetchval("insert into reactor.jobs (job_type) values (null) returning id")
    before = [await bench.row(job_id) for job_id in (unknown, adopted)]
    await bench.run()
    async with running() as loop:
        assert await loop.run_job(unknown) is None
        assert await loop.run_job(adopted) is None
        assert await loop.run_job(987654321) is None
    assert [await bench.row(job_id) for job_id in (unknown, adopted)] == before
    caught = [(e["event"], e["job_type"]) for e in events if "handler for" in e["event"]]
    assert ("no live pod has a handler for these jobs", "unheard.of") in caught
    assert ("no handler for this job", "unheard.of") in caught
    assert ("no handler for this job", None) in caught


async def test_a_job_of_another_worker_is_not_run(
    bench: Bench, registry: Registry, running: Running, worker: Worker
) -> None:
    """P3: a failed claim changes nothing and returns None."""
    calls: list[int] = []

    @registry.register("work")
    async def work(job: Job) -> None:
        calls.append(job.id)

    async with running("none of these") as loop:
        taken, free = await bench.submit(), await bench.submit()
        claimed = await claim_one(bench.connection, worker, taken)
        assert claimed
        assert await loop.run_job(taken) is None
        assert await loop.run_job(free) is JobState.COMPLETED
        assert await loop.run_job(free) is None, "it is done"
    assert calls == [free]
    after = await bench.row(taken)
    assert (after["attempt_id"], after["attempts"], after["locked_by"]) == (claimed.attempt_id, 1, "pod-1")


async def test_run_job_returns_the_state_of_the_job(bench: Bench, registry: Registry, running: Running) -> None:
    """D2: it is run like every other job."""

    @registry.register("work", backoff=60)
    async def work(job: Job) -> Partial:
        if job.payload:
            raise ValueError
        return Partial({"attempt": job.attempts})

    async with running("none of these") as loop:
        assert await loop.run_job(await bench.submit()) is JobState.PARTIAL
        fails = await bench.submit({"fail": True})
        assert await loop.run_job(fails) is JobState.PENDING
        assert await loop.run_job(fails) is None, "it is not due"


async def _is(bench: Bench, job_id: int, state: str) -> bool:
    return bool((await bench.row(job_id))["state"] == state)


# Outcomes


async def test_the_return_value_is_the_result(bench: Bench, registry: Registry) -> None:
    """D6, D7"""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> dict[str, Any]:
        return {"rows": 3, "file": job.payload["file"], "ü": "\U0001f600"}

    after = await bench.ran({"file": "a.csv"})
    assert (after["state"], after["attempts"], after["error"]) == ("completed", 1, None)
    assert json.loads(after["result"]) == {"rows": 3, "file": "a.csv", "ü": "\U0001f600"}
    assert after["created_at"] <= after["started_at"] == after["locked_at"] <= after["finished_at"]
    assert after["locked_by"] == "test"


async def test_a_job_is_retried_after_errors_and_then_fails(bench: Bench, registry: Registry) -> None:
    """D6, D7: started_at is that of the first attempt, locked_at that of the newest."""

    @registry.register("work", max_attempts=2, backoff=60)
    async def work(job: Job) -> None:
        raise ValueError(f"attempt {job.attempts} of {job.quota}")

    job_id = await bench.submit()
    assert await bench.run() == {JobState.PENDING: 1}
    first = await bench.row(job_id)
    assert (first["state"], first["attempts"], first["finished_at"]) == ("pending", 1, None)
    assert first["error"].startswith("ValueError: attempt 1 of 2\n")
    assert "raise ValueError(" in first["error"], "where it came from"
    assert first["run_after"] - first["locked_at"] > timedelta(seconds=59)
    assert await bench.run(skip_delays=True) == {JobState.FAILED: 1}
    last = await bench.row(job_id)
    assert (last["state"], last["attempts"]) == ("failed", 2)
    assert last["error"].startswith("ValueError: attempt 2 of 2\n")
    assert last["started_at"] == first["started_at"]
    assert last["locked_at"] > first["locked_at"]
    assert last["finished_at"] > last["locked_at"]


async def test_max_attempts_of_the_job_override_those_of_the_handler(bench: Bench, registry: Registry) -> None:
    @registry.register("work", max_attempts=5, backoff=0)
    async def work() -> None:
        raise ValueError

    assert (await bench.ran(max_attempts=2))["attempts"] == 2
    assert (await bench.ran())["attempts"] == 5


@pytest.mark.parametrize(
    ("raises", "state", "error", "message", "attempts"),
    [
        (Fail("no such file"), "failed", "no such file", None, 1),
        (Fail(), "failed", "The handler failed without saying why.", None, 1),
        (Fail("no such file", message="looked in 3 places"), "failed", "no such file", "looked in 3 places", 1),
        (Retry("the server is busy", after=60), "pending", "the server is busy", None, 1),
        (Retry(after=timedelta(minutes=1)), "pending", "The handler asked for another attempt.", None, 1),
        (Snooze(60, "no file yet"), "pending", None, "no file yet", 0),
        (Snooze(timedelta(minutes=1)), "pending", None, None, 0),
        (Snooze(60, ValueError("no file yet")), "pending", None, "no file yet", 0),  # type: ignore[arg-type]
    ],
)
async def test_exceptions_of_a_handler_decide_the_outcome(
    bench: Bench,
    registry: Registry,
    raises: Exception,
    state: str,
    error: str | None,
    message: str | None,
    attempts: int,
) -> None:
    @registry.register("work")
    async def work() -> None:
        raise raises

    after = await bench.ran()
    assert (after["state"], after["error"], after["status_message"], after["attempts"]) == (
        state,
        error,
        message,
        attempts,
    )
    if state == "pending":
        assert timedelta(seconds=58) < after["run_after"] - after["locked_at"] < timedelta(seconds=70)


@pytest.mark.parametrize("keep_data", [False, True])
async def test_a_failure_has_a_result(bench: Bench, registry: Registry, keep_data: bool) -> None:
    """D6: also without a transaction."""

    @registry.register("work")
    async def work() -> None:
        raise Fail("2 rows are invalid", result={"invalid": [3, 7]}, keep_data=keep_data)

    after = await bench.ran()
    assert (after["state"], after["error"], after["attempts"]) == ("failed", "2 rows are invalid", 1)
    assert json.loads(after["result"]) == {"invalid": [3, 7]}


async def test_the_result_of_a_failure_can_be_a_model(bench: Bench, registry: Registry) -> None:
    @registry.register("work")
    async def work() -> None:
        raise Fail("late", result=Report(rows=2))  # type: ignore[arg-type]

    assert json.loads((await bench.ran())["result"]) == {"rows": 2, "until": "PT1H"}


@pytest.mark.parametrize("result", [{"x": float("nan")}, 5])
async def test_a_failure_whose_result_can_not_be_stored_keeps_its_reason(
    bench: Bench, registry: Registry, result: Any
) -> None:
    @registry.register("work")
    async def work() -> None:
        raise Fail("the reason", result=result, keep_data=True)

    after = await bench.ran()
    assert (after["state"], after["result"], after["attempts"]) == ("failed", None, 1)
    assert after["error"].startswith("the reason\n\n")
    assert "work" in after["error"]


async def test_retries_end_with_the_attempts_and_snoozes_do_not(bench: Bench, registry: Registry) -> None:
    calls = {"retry": 0, "snooze": 0}

    @registry.register("retry", max_attempts=3)
    async def retry() -> None:
        calls["retry"] += 1
        raise Retry(after=0)

    @registry.register("snooze", max_attempts=1)
    async def snooze() -> None:
        calls["snooze"] += 1
        if calls["snooze"] < 6:
            raise Snooze(0)

    retried, snoozed = await bench.submit(job_type="retry"), await bench.submit(job_type="snooze")
    await bench.run()
    assert calls == {"retry": 3, "snooze": 6}
    assert (await bench.row(retried))["state"] == "failed"
    assert ((await bench.row(snoozed))["state"], (await bench.row(snoozed))["attempts"]) == ("completed", 1)


class Report(BaseModel):
    rows: int
    until: timedelta = timedelta(hours=1)


@pytest.mark.parametrize(
    ("returned", "state", "result", "message"),
    [
        (None, "completed", None, None),
        ({}, "completed", {}, None),
        (Completed({"a": 1}, "all done"), "completed", {"a": 1}, "all done"),
        (Completed(message="nothing to do"), "completed", None, "nothing to do"),
        (Partial({"a": 1}, "2 of 3"), "partial", {"a": 1}, "2 of 3"),
        (Report(rows=2), "completed", {"rows": 2, "until": "PT1H"}, None),
        (Partial(Report(rows=2)), "partial", {"rows": 2, "until": "PT1H"}, None),  # type: ignore[arg-type]
    ],
)
async def test_valid_return_values(
    bench: Bench, registry: Registry, returned: object, state: str, result: object, message: str | None
) -> None:
    """D6: the handler chooses the outcome and the final message."""

    @registry.register("work")
    async def work() -> Any:
        return returned

    after = await bench.ran()
    assert (after["state"], after["result"] and json.loads(after["result"]), after["status_message"]) == (
        state,
        result,
        message,
    )


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found


class Unserializable(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    lock: Any = Field(default_factory=threading.Lock)


@pytest.mark.parametrize(
    "returned",
    [
        5,
        "done",
        [{"a": 1}],
        Completed("done"),  # type: ignore[arg-type]
        Completed(message=5),  # type: ignore[arg-type]
        Partial({}, b"x"),  # type: ignore[arg-type]
        {"x": "\0"},
        {"x": float("nan")},
        {"x": "\ud800"},
        {"x": object()},
        {(1, 2): 3},
        {"x": 10**5000},
        nested(100_000),
        Unserializable(),
    ],
    ids=lambda returned: type(returned).__name__,
)
async def test_a_result_that_can_not_be_stored_affects_no_other_job(
    bench: Bench, registry: Registry, returned: object
) -> None:
    """They are settled in one batch. The job is not retried, since the result would be the same."""
    together = asyncio.Barrier(3)

    @registry.register("odd")
    async def odd() -> Any:
        await together.wait()
        return returned

    @registry.register("work")
    async def work(ctx: Context) -> dict[str, Any]:
        await together.wait()
        return {"a": 1}

    bad, *good = [await bench.submit(job_type=kind) for kind in ("odd", "work", "work")]
    await bench.run()
    assert [(await bench.row(job_id))["state"] for job_id in good] == ["completed"] * 2
    after = await bench.row(bad)
    assert (after["state"], after["attempts"]) == ("failed", 1)
    assert "returned" in after["error"]


@pytest.mark.parametrize(
    "returned",
    [{"x": 10**4000}, nested(900), Completed({"x": "\\u0000"}, "a\0b \ud800")],
    ids=["number", "nested", "text"],
)
async def test_an_unusual_result_is_stored(bench: Bench, registry: Registry, returned: object) -> None:
    @registry.register("work")
    async def work() -> Any:
        return returned

    after = await bench.ran()
    assert after["state"] == "completed", after["error"]
    assert after["status_message"] in (None, "a\ufffdb ?")


async def test_a_result_that_only_the_database_refuses_fails_its_own_job(bench: Bench, registry: Registry) -> None:
    together = asyncio.Barrier(2)

    @registry.register("work")
    async def work(payload: dict[str, Any]) -> Any:
        await together.wait()
        return {"x": payload["x"]}

    await bench.connection.execute(
        "alter table reactor.jobs add constraint too_much check ((result ->> 'x')::int < 10) not valid"
    )
    bad, good = await bench.submit({"x": 10}), await bench.submit({"x": 1})
    await bench.run()
    assert (await bench.row(good))["state"] == "completed"
    after = await bench.row(bad)
    assert after["state"] == "failed"
    assert "too_much" in after["error"]


async def test_a_failure_whose_result_the_database_refuses_keeps_its_reason(bench: Bench, registry: Registry) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> None:
        await ctx.chain("child")
        raise Fail("the reason", result={"x": 10}, keep_data=True)

    await bench.connection.execute(
        "alter table reactor.jobs add constraint too_much check ((result ->> 'x')::int < 10) not valid"
    )
    after = await bench.ran()
    assert (after["state"], after["children"]) == ("failed", 0)
    assert after["error"].startswith("the reason\n\n")
    assert "too_much" in after["error"]


async def test_a_job_that_failed_because_of_its_result_has_no_children(bench: Bench, registry: Registry) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> dict[str, Any]:
        await ctx.chain("child")
        return {"x": float("nan")}

    after = await bench.ran()
    assert (after["state"], after["children"]) == ("failed", 0)
    assert await bench.connection.fetchval("select count(*) from reactor.jobs") == 1


class Abort(BaseException):
    """Not an Exception, like the outcomes of pytest."""


@pytest.mark.parametrize(
    "raises",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        Abort("x"),
        GeneratorExit(),
        StopIteration(),
        BaseExceptionGroup("g", [Abort()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_exit_exceptions_end_only_the_attempt(
    bench: Bench, registry: Registry, raises: BaseException, in_thread: bool
) -> None:
    def threaded() -> None:
        raise raises

    async def direct() -> None:
        raise raises

    registry.register("work", max_attempts=1)(threaded if in_thread else direct)
    registry.register("plain")(lambda: None)
    await bench.submit(job_type="plain")
    after = await bench.ran()
    assert after["state"] == "failed"
    assert type(raises).__name__ in after["error"]
    assert await bench.connection.fetchval("select state from reactor.jobs where job_type = 'plain'") == "completed"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_that_cancels_itself_has_failed(bench: Bench, registry: Registry, in_thread: bool) -> None:
    """If it were considered a cancellation by the worker, the job would stay running forever."""

    def threaded() -> None:
        raise Cancelled("by myself")

    async def direct() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(10)

    registry.register("work", max_attempts=1)(threaded if in_thread else direct)
    after = await bench.ran()
    assert after["state"] == "failed"
    assert "cancelled from within" in after["error"]


async def test_an_endless_error_is_cut(bench: Bench, registry: Registry) -> None:
    @registry.register("work", max_attempts=1)
    async def work() -> None:
        raise ValueError("x" * 1_000_000 + "\0")

    after = await bench.ran()
    assert after["state"] == "failed"
    assert len(after["error"]) < 10_000


# Payloads


class Order(BaseModel):
    year: int
    factor: float = Field(gt=0)


async def test_a_payload_is_given_as_its_model(bench: Bench, registry: Registry) -> None:
    @registry.register("work")
    async def work(order: Order, job: Job) -> dict[str, Any]:
        assert isinstance(order, Order)
        return {"year": order.year + 1, "raw": job.payload["year"]}

    assert json.loads((await bench.ran({"year": "2026", "factor": 2}))["result"]) == {"year": 2027, "raw": "2026"}


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_invalid_payload_fails_permanently_and_names_the_field(
    bench: Bench, registry: Registry, in_thread: bool
) -> None:
    called: list[bool] = []

    def threaded(order: Order) -> None:
        called.append(True)

    async def direct(order: Order) -> None:
        called.append(True)

    registry.register("work", max_attempts=5, backoff=0)(threaded if in_thread else direct)
    after = await bench.ran({"year": "soon", "factor": -1})
    assert (after["state"], after["attempts"], called) == ("failed", 1, [])
    assert "year: Input should be a valid integer" in after["error"]
    assert "factor: Input should be greater than 0" in after["error"]


# Threads


async def test_each_plain_function_runs_in_its_own_thread(bench: Bench, registry: Registry) -> None:
    """Two of them wait for each other, and the event loop is not blocked."""
    both = threading.Barrier(2, timeout=10)

    @registry.register("work")
    def work(job: Job, ctx: SyncContext) -> dict[str, Any]:
        both.wait()
        ctx.progress(0.5, "half")
        return {"thread": threading.get_ident()}

    ids = [await bench.submit() for _ in range(2)]
    await bench.run()
    rows = [await bench.row(job_id) for job_id in ids]
    assert [(r["state"], r["progress"], r["status_message"]) for r in rows] == [("completed", 1.0, "half")] * 2
    threads = {json.loads(r["result"])["thread"] for r in rows}
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_thread_sees_the_context_variables_of_its_attempt(bench: Bench, registry: Registry) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @registry.around
    async def tenants(job: Job, ctx: Context) -> AsyncIterator[None]:
        tenant.set(job.payload["tenant"])
        yield

    @registry.register("work")
    def work() -> dict[str, Any]:
        return {"tenant": tenant.get()}

    ids = [await bench.submit({"tenant": name}) for name in "ab"]
    await bench.run()
    assert [json.loads((await bench.row(job_id))["result"]) for job_id in ids] == [{"tenant": "a"}, {"tenant": "b"}]
    assert tenant.get("") == ""


# Hooks, resources and logs


async def test_hooks_see_each_attempt_and_its_error_in_order(bench: Bench, registry: Registry) -> None:
    seen: list[object] = []

    @registry.around
    async def outer(job: Job, ctx: Context) -> AsyncIterator[None]:
        seen.append("outer")
        try:
            yield
        except ValueError as error:
            seen.append(f"outer saw {error}")
            raise

    @registry.around
    async def inner(job: Job, ctx: Context) -> AsyncIterator[None]:
        seen.append("inner")
        try:
            yield
        finally:
            seen.append("inner ends")

    @registry.register("work", backoff=0)
    async def work(job: Job) -> None:
        seen.append("work")
        if job.attempts == 1:
            raise ValueError("boom")

    assert (await bench.ran())["state"] == "completed"
    attempt = ["outer", "inner", "work", "inner ends"]
    assert seen == [*attempt, "outer saw boom", *attempt]


@pytest.mark.parametrize(
    ("raises", "state"), [(ValueError("boom"), "failed"), (Fail("for good"), "failed"), (Snooze(60), "pending")]
)
async def test_a_hook_can_not_hide_how_the_handler_ended(
    bench: Bench, registry: Registry, raises: Exception, state: str
) -> None:
    @registry.around
    async def hides(job: Job, ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            assert error is raises  # noqa: PT017 (and the rest of the test would show it)

    @registry.register("work", max_attempts=1)
    async def work() -> None:
        raise raises

    after = await bench.ran()
    assert after["state"] == state
    assert str(raises) in (after["error"] or str(raises))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_hook_that_raises_fails_only_its_attempt(bench: Bench, registry: Registry, when: str) -> None:
    @registry.around
    async def breaks(job: Job, ctx: Context) -> AsyncIterator[None]:
        if job.job_type == "work" and when == "before":
            raise ZeroDivisionError
        yield
        if job.job_type == "work":
            raise ZeroDivisionError

    registry.register("work", max_attempts=1)(lambda: None)
    registry.register("plain")(lambda: None)
    await bench.submit(job_type="plain")
    after = await bench.ran()
    assert (after["state"], after["error"].splitlines()[0]) == ("failed", "ZeroDivisionError")
    assert await bench.connection.fetchval("select state from reactor.jobs where job_type = 'plain'") == "completed"


async def test_shared_resources_are_opened_once_and_closed_in_reverse(bench: Bench, registry: Registry) -> None:
    seen: list[str] = []

    @registry.lifespan
    async def pool() -> AsyncIterator[dict[str, Any]]:
        seen.append("open pool")
        yield {"pool": "P"}
        seen.append("close pool")

    @registry.lifespan
    async def client() -> AsyncIterator[None]:
        seen.append("open client")
        yield
        seen.append("close client")

    @registry.register("work")
    async def work(ctx: Context) -> None:
        seen.append(ctx.resources["pool"])

    @registry.register("threaded")
    def threaded(ctx: SyncContext) -> None:
        seen.append(ctx.resources["pool"])

    for kind in ("work", "work", "threaded"):
        await bench.submit(job_type=kind)
    await bench.run()
    assert seen == ["open pool", "open client", "P", "P", "P", "close client", "close pool"]


async def test_log_entries_of_a_handler_have_its_job_id_and_attempt_id(
    bench: Bench, registry: Registry, events: Events
) -> None:
    @registry.register("work")
    def work(ctx: SyncContext) -> None:
        ctx.log.info("hello", name="world")

    after = await bench.ran()
    [hello] = [e for e in events if e["event"] == "hello"]
    assert (hello["job_id"], hello["job_type"], hello["name"]) == (after["id"], "work", "world")
    assert (hello["attempt_id"], hello["pipeline_id"]) == (str(after["attempt_id"]), str(after["pipeline_id"]))


# Progress


async def test_progress_is_committed_when_the_call_returns(bench: Bench, registry: Registry) -> None:
    seen: list[tuple[float | None, str | None]] = []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async def look() -> None:
            row = await bench.row(job.id)
            seen.append((row["progress"], row["status_message"]))

        await ctx.progress(0.25, "a quarter")
        await look()
        await ctx.progress(0.5)
        await look()
        await ctx.progress(message="half\0 \ud800")
        await look()
        await asyncio.gather(*(ctx.progress(n / 100) for n in range(60, 100)), ctx.progress(message="together"))
        await look()

    assert (await bench.ran())["state"] == "completed"
    assert seen == [(0.25, "a quarter"), (0.5, "a quarter"), (0.5, "half\ufffd ?"), (pytest.approx(0.99), "together")]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_facts_are_added_to_the_job_at_once_and_kept(bench: Bench, registry: Registry, in_thread: bool) -> None:
    """D17: an attempt that fails leaves them to the next one."""
    seen: list[Any] = []

    async def direct(job: Job, ctx: Context) -> None:
        seen.append(await ctx.meta())
        seen.append(await ctx.meta(children_fired=3, ids=[job.attempts]))
        assert json.loads((await bench.row(job.id))["meta"]) == seen[-1]
        if job.attempts == 1:
            raise ValueError

    def threaded(job: Job, ctx: SyncContext) -> None:
        seen.extend([ctx.meta(), ctx.meta(children_fired=3, ids=[job.attempts])])
        if job.attempts == 1:
            raise ValueError

    registry.register("work", backoff=0)(threaded if in_thread else direct)
    after = await bench.ran(meta={"region": "eu", "children_fired": 0})
    first, last = ({"region": "eu", "children_fired": 3, "ids": [number]} for number in (1, 2))
    assert seen == [{"region": "eu", "children_fired": 0}, first, first, last]
    assert (after["state"], json.loads(after["meta"])) == ("completed", last)


async def test_facts_and_progress_that_are_reported_together_are_all_written(bench: Bench, registry: Registry) -> None:
    @registry.register("work")
    async def work(ctx: Context) -> Partial:
        await asyncio.gather(*(ctx.meta(**{f"n{n}": n, "last": n}) for n in range(20)), ctx.progress(0.5, "half"))
        return Partial()

    one, other = await bench.submit(), await bench.submit()
    await bench.run()
    for job_id in (one, other):
        after = await bench.row(job_id)
        assert json.loads(after["meta"]) == {f"n{n}": n for n in range(20)} | {"last": 19}
        assert (after["progress"], after["status_message"]) == (0.5, "half")


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"x": "y" * 10_001}, "meta is larger than 10 kB"),
        ({"x": float("nan")}, "not JSON compliant"),
        ({"x": "\0"}, "the character NUL"),
        ({"x": object()}, "not JSON serializable"),
    ],
    ids=["size", "nan", "nul", "object"],
)
async def test_facts_that_can_not_be_stored_are_refused(
    bench: Bench, registry: Registry, facts: dict[str, Any], complaint: str
) -> None:
    @registry.register("work", max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        await ctx.meta(**(facts if job.payload else {"good": True}))

    bad, good = await bench.submit({"bad": True}), await bench.submit()
    await bench.run()
    after = await bench.row(bad)
    assert (after["state"], after["meta"]) == ("failed", None)
    assert complaint in after["error"]
    assert json.loads((await bench.row(good))["meta"]) == {"good": True}


async def test_facts_of_a_job_that_was_taken_are_not_written(bench: Bench, registry: Registry) -> None:
    """F6"""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await bench.connection.fetch(statements.CANCEL, [job.id], "no more")
        await ctx.meta(late=True)

    after = await bench.ran()
    assert (after["state"], after["meta"]) == ("cancelled", None)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), float("inf")])
async def test_progress_outside_0_to_1_is_refused(bench: Bench, registry: Registry, fraction: float) -> None:
    @registry.register("work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.progress(fraction)

    after = await bench.ran()
    assert after["state"] == "failed"
    assert "progress is a fraction from 0 to 1" in after["error"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_progress_of_a_job_that_was_taken_stops_the_handler(
    bench: Bench, registry: Registry, events: Events, in_thread: bool
) -> None:
    """F6: the stale attempt changes nothing and is stopped; then its scope is free."""
    went_on: list[bool] = []
    loop = asyncio.get_running_loop()

    def threaded(job: Job, ctx: SyncContext) -> None:
        asyncio.run_coroutine_threadsafe(bench.connection.fetch(statements.CANCEL, [job.id], "no more"), loop).result()
        ctx.progress(0.9, "too late")
        went_on.append(True)

    async def direct(job: Job, ctx: Context) -> None:
        await bench.connection.fetch(statements.CANCEL, [job.id], "no more")
        await ctx.progress(0.9, "too late")
        went_on.append(True)

    registry.register("work")(threaded if in_thread else direct)
    after = await bench.ran(scope="s")
    assert (after["state"], after["error"], after["progress"], after["status_message"]) == (
        "cancelled",
        "no more",
        None,
        None,
    )
    assert after["worker_id"] is None
    assert not went_on
    assert [e["job_id"] for e in events if e["event"] == "writeback_stale_attempt"] == [after["id"]]


async def test_a_locked_row_does_not_delay_progress_of_others(
    bench: Bench, registry: Registry, database: str, connection: Connection
) -> None:
    """An operator's open transaction on one job must not stop the other jobs of a worker."""
    locked, free = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        await locked.wait()
        await ctx.progress(0.5)
        if not job.payload.get("locked"):
            free.set()

    one, other = await bench.submit({"locked": True}), await bench.submit()
    running = asyncio.create_task(bench.run())
    await until(lambda: _is(bench, one, "running"))
    async with connection.transaction():
        await connection.execute("select from reactor.jobs where id = $1 for update", one)
        locked.set()
        async with asyncio.timeout(20):
            await free.wait()
    await running
    assert [(await bench.row(n))["progress"] for n in (one, other)] == [1.0, 1.0]


# Timeouts


async def test_a_handler_that_exceeds_its_timeout_is_stopped_and_retried(bench: Bench, registry: Registry) -> None:
    """The row's timeout overrides the handler's."""
    cleaned: list[int] = []

    @registry.register("work", timeout_seconds=3600, backoff=0)
    async def work(job: Job) -> None:
        if job.attempts == 1:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(job.attempts)

    after = await bench.ran(timeout_seconds=0.05)
    assert (after["state"], after["attempts"], cleaned) == ("completed", 2, [1])
    [error] = await bench.connection.fetch("select number, outcome, error from reactor.attempts")
    assert tuple(error) == (1, "error", "TimeoutError: The handler did not end within 0.05 s.")


async def test_a_thread_notices_its_timeout_at_its_next_call(
    bench: Bench, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the thread may not run for 2 s, and would be abandoned.
    monkeypatch.setattr(Slots, "timings", Timings(give_up_seconds=60))
    caught: list[bool] = []

    @registry.register("work", timeout_seconds=0.05, max_attempts=1)
    def work(ctx: SyncContext) -> None:
        try:
            while not ctx.cancelled:
                time.sleep(0.005)
            ctx.progress(0.5)
        except Exception:
            caught.append(False)  # handlers' `except Exception` must not catch it
        finally:
            caught.append(True)

    after = await bench.ran()
    assert (after["state"], caught, after["progress"]) == ("failed", [True], None)
    assert "did not end within 0.05 s" in after["error"]


async def test_an_error_after_a_timeout_is_reported_as_the_timeout(bench: Bench, registry: Registry) -> None:
    """Libraries turn a cancellation into their own errors."""

    @registry.register("work", timeout_seconds=0.05, max_attempts=1)
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("the peer went away") from None

    assert "did not end within 0.05 s" in (await bench.ran())["error"]


async def test_a_thread_that_does_not_stop_is_abandoned_and_keeps_its_scope(
    bench: Bench, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """The job continues (here: fails), but no other job of its scope starts before the thread has really ended."""
    monkeypatch.setattr(Slots, "timings", Timings(give_up_seconds=0.05))
    let_go, order = threading.Event(), list[str]()

    @registry.register("deaf", timeout_seconds=0.05, max_attempts=1)
    def deaf() -> None:
        let_go.wait(20)
        order.append("the thread ends")

    @registry.register("work")
    async def work() -> None:
        order.append("the next begins")

    @registry.register("plain")
    async def plain() -> None:
        order.append("plain")

    try:
        async with running() as loop:
            stuck = await bench.submit(job_type="deaf", scope="s")
            await until(lambda: _is(bench, stuck, "failed"))
            assert loop.is_stuck
            after = await bench.row(stuck)
            assert "did not end within 0.05 s" in after["error"]
            assert after["worker_id"] == loop.worker.id
            waiting = await bench.submit(scope="s")
            # It can't be claimed by its id either; jobs of other scopes run.
            assert await loop.run_job(waiting) is None
            await bench.submit(job_type="plain")
            await until(lambda: order == ["plain"])
            assert (await bench.row(waiting))["state"] == "pending"
            let_go.set()
            await until(lambda: _is(bench, waiting, "completed"))
    finally:
        let_go.set()
    assert order == ["plain", "the thread ends", "the next begins"]
    assert any(e["event"] == "a handler does not stop" for e in events)


async def test_the_result_of_an_abandoned_thread_is_ignored(
    bench: Bench, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7: its attempt has ended; the next attempt writes the result."""
    monkeypatch.setattr(Slots, "timings", Timings(give_up_seconds=0.05))
    let_go = threading.Event()

    @registry.register("work", backoff=60)
    def work(job: Job) -> dict[str, Any]:
        if job.attempts == 1:
            let_go.wait(20)
        return {"attempt": job.attempts}

    try:
        async with running("none of these") as loop:
            job_id = await bench.submit(timeout_seconds=0.05)
            assert await loop.run_job(job_id) is None
            # The next attempt has no timeout.
            await bench.connection.execute("update reactor.jobs set timeout_seconds = null, run_after = null")
            assert await loop.run_job(job_id) is JobState.COMPLETED
            let_go.set()
    finally:
        let_go.set()
    after = await bench.row(job_id)
    assert (json.loads(after["result"]), after["attempts"], after["worker_id"]) == ({"attempt": 2}, 2, None)


async def test_a_cancelled_handlers_clean_up_is_not_cancelled_again(
    bench: Bench, registry: Registry, running: Running
) -> None:
    """Every further cancel of a job of this worker causes a reconciliation."""
    cleaned, started = asyncio.Event(), asyncio.Event()

    @registry.register("work")
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)  # long enough for several reconciliations
            cleaned.set()

    async with running() as loop:
        job_id = await bench.submit(scope="s")
        await started.wait()
        await bench.connection.fetch(statements.CANCEL, [job_id], "no")

        async def has_cleaned_up() -> bool:
            await bench.connection.execute("select pg_notify('reactor_cancel', $1)", str(loop.worker.id))
            return cleaned.is_set()

        await until(has_cleaned_up)
        await until(lambda: _free(bench, job_id))
        assert loop.counts.stale == 1


async def _free(bench: Bench, job_id: int) -> bool:
    return (await bench.row(job_id))["worker_id"] is None


# After the attempt


async def test_a_task_that_outlives_its_attempt_can_not_use_the_context(bench: Bench, registry: Registry) -> None:
    left: list[asyncio.Task[None]] = []
    ended = asyncio.Event()

    @registry.register("work")
    async def work(ctx: Context) -> None:
        async def later() -> None:
            await ended.wait()
            async with ctx.transaction():
                raise AssertionError("unreachable")

        left.append(asyncio.create_task(later()))

    assert (await bench.ran())["state"] == "completed"
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await left[0]


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
async def test_running_jobs_leaves_no_file_open(bench: Bench, registry: Registry) -> None:
    registry.register("work")(lambda: None)
    await bench.ran()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        await bench.ran()
    await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)


# One execution, without a database


@pytest.fixture
def execution(registry: Registry) -> Execution:
    """Of a handler that waits until it is cancelled."""

    @registry.register("work")
    async def work() -> None:
        await asyncio.Event().wait()

    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(1, "work", {}, uuid4(), None, "default", 0, [], None, uuid4(), 1, 3, None, now, now, now)
    services = Services(cast(Any, None), cast(Any, None), {}, (), cast(Any, None))
    return Execution(job, registry.get_handler("work"), services)


async def test_the_first_reason_to_stop_counts_unless_the_job_is_lost(execution: Execution) -> None:
    reasons = []
    for why in (Stop.TIMEOUT, Stop.SHUTDOWN, Stop.TAKEN):
        execution.stop(why)
        reasons.append(execution.attempt.stop_because)
    assert reasons == [Stop.TIMEOUT, Stop.TIMEOUT, Stop.TAKEN]


async def test_an_attempt_that_must_stop_before_it_starts_does_not_call_its_handler(execution: Execution) -> None:
    execution.stop(Stop.SHUTDOWN)
    assert await execution.run() is End.INTERRUPTED
    assert execution.attempt.phase is Phase.ENDED


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_an_attempt_goes_from_ready_to_ended(execution: Execution, is_abandoned: bool) -> None:
    phases = [execution.attempt.phase]
    task = asyncio.create_task(execution.run())
    await until(lambda: execution.attempt.phase is not Phase.READY)
    phases.append(execution.attempt.phase)
    if is_abandoned:
        execution.attempt.abandon()
        phases.append(execution.attempt.phase)
    execution.attempt.stop_because = Stop.TAKEN
    task.cancel()
    assert await task is End.STALE
    phases.append(execution.attempt.phase)
    abandoned = [Phase.ABANDONED] if is_abandoned else []
    assert phases == [Phase.READY, Phase.RUNNING, *abandoned, Phase.ENDED]
