"""What handlers log is stored, by attempt and step, however the attempt ends."""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
import structlog

from reactor import Context, Fail, Job, LogOptions, Registry, Retry, Snooze, Step, Summary, SyncContext, submit
from reactor.database.connection import Connection
from reactor.errors import HandlerInvalid
from reactor.handlers.stored_log import CaptureHandler
from reactor.lifecycle.claim import claim_one
from reactor.log import get_logger
from reactor.testing import run_until_idle
from reactor.worker.slots import Slots, Timings
from tests.support.claim_loops import Running
from tests.support.jobs import Row, has_state
from tests.support.pods import Marks, StartPod
from tests.support.until import until

Line = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Nothing is printed, and the handler that captures is removed again."""
    root = logging.getLogger()
    before = root.handlers[:]
    with structlog.testing.capture_logs():
        yield
    root.handlers[:] = before


async def lines(connection: Connection, *columns: str, job_id: int = 1) -> list[Line]:
    rows = await connection.fetch(
        f"select {', '.join(columns or ('level', 'message'))} from reactor.logs where job_id = $1 order by id", job_id
    )
    return [tuple(row) for row in rows]


async def messages(connection: Connection, job_id: int = 1) -> list[str]:
    return [line[0] for line in await lines(connection, "message", job_id=job_id)]


async def run(database: str, connection: Connection, registry: Registry, **options: Any) -> None:
    await submit(connection, "work", **options)
    logging.getLogger().handlers.clear()  # pytest's raise what they can't format
    async with asyncio.timeout(20):
        await run_until_idle(database, registry, skip_delays=True)


# What is stored


async def test_what_is_logged_and_bound_is_stored(database: str, connection: Connection, registry: Registry) -> None:
    """J17"""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.debug("too fine")
        ctx.log.info("read %d of %d", 3, 4, file="a.csv")
        ctx.log.bind(tenant="x").warning("slow", seconds=1.5)

    await run(database, connection, registry)
    stored = await lines(connection, "attempt", "number", "level", "step", "message", "fields")
    assert [line[:5] for line in stored] == [(1, 1, "info", None, "read 3 of 4"), (1, 2, "warning", None, "slow")]
    assert [json.loads(line[5]) for line in stored] == [{"file": "a.csv"}, {"tenant": "x", "seconds": 1.5}]


async def test_values_that_json_lacks_are_stored_as_text(
    database: str, connection: Connection, registry: Registry
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise ZeroDivisionError

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        at = datetime(2026, 1, 2, tzinfo=UTC)
        ctx.log.info("odd\0 \ud800", at=at, nested={"at": [at]}, nan=float("nan"), broken=Broken(), half="\udfff\0")
        ctx.log.info(Broken())  # type: ignore[arg-type]
        loop: list[Any] = []
        loop.append(loop)
        ctx.log.info("loop", loop=loop)

    await run(database, connection, registry)
    stored = await lines(connection, "message", "fields")
    assert stored[0][0] == "odd\ufffd ?"
    assert json.loads(stored[0][1]) == {
        "at": "2026-01-02 00:00:00+00:00",
        "nested": {"at": ["2026-01-02 00:00:00+00:00"]},
        "nan": "nan",
        "broken": "(Broken can't be shown: ZeroDivisionError)",
        "half": "?\ufffd",
    }
    assert [line[0] for line in stored[1:]] == [
        "(Broken can't be shown: ZeroDivisionError)",
        "loop",
    ]


async def test_long_lines_are_shortened(database: str, connection: Connection, registry: Registry) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("x" * 1_000_000, first=1, long="y" * 1_000_000, **{f"n{n}": "z" * 400 for n in range(100)})

    await run(database, connection, registry)
    [(message, fields)] = await lines(connection, "message", "fields")
    assert len(message) == 8000
    assert len(fields) < 10_000
    stored = json.loads(fields)
    assert stored["first"] == 1
    assert stored["long"].endswith("…")
    assert stored["…"].endswith("more")


async def test_exceptions_are_stored_with_their_traceback(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        try:
            raise ValueError("the end " + "x" * 20_000 + " matters")
        except ValueError:
            ctx.log.exception("it failed", part=2)

    await run(database, connection, registry)
    [(level, fields)] = await lines(connection, "level", "fields")
    stored = json.loads(fields)
    assert (level, stored["part"]) == ("error", 2)
    assert stored["exception"].startswith("Traceback (most recent call last)")
    assert stored["exception"].endswith(" matters")
    assert len(stored["exception"]) < 8100


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_lines_name_the_step_that_logged_them(
    database: str, connection: Connection, registry: Registry, kind: str
) -> None:
    """J17: in parallel steps and in threads too."""

    def in_thread(ctx: Context | SyncContext, name: str) -> None:
        ctx.log.info(name)

    if kind == "async":

        @registry.register("work")
        async def work(job: Job, ctx: Context) -> Summary:
            async def one(name: str) -> None:
                await asyncio.sleep(0.01)
                ctx.log.info(name)
                await asyncio.sleep(0.01)
                ctx.log.info(name)

            await ctx.step("alone", in_thread, ctx, "alone")
            ctx.log.info("between")
            summary = await ctx.steps([[Step(name, one, name) for name in "abcdef"]], at_once=3)
            ctx.log.info("after")
            return summary
    else:

        @registry.register("work")
        def sync_work(job: Job, ctx: SyncContext) -> Summary:
            ctx.step("alone", in_thread, ctx, "alone")
            ctx.log.info("between")
            summary = ctx.steps([[Step(name, in_thread, ctx, name) for name in "abcdef"]], at_once=3)
            ctx.log.info("after")
            return summary

    await run(database, connection, registry)
    stored = await lines(connection, "step", "message")
    assert len(stored) == (15 if kind == "async" else 9)
    assert all(step == (None if message in ("between", "after") else message) for step, message in stored)


# However the attempt ends


async def fail(ctx: Context) -> None:
    raise Fail("no")


async def retry(ctx: Context) -> None:
    raise Retry(after=0.01)


async def snooze(ctx: Context) -> None:
    raise Snooze(0.01)


async def break_(ctx: Context) -> None:
    raise ValueError("no")


async def cancel_itself(ctx: Context) -> None:
    raise asyncio.CancelledError


async def exceed_the_timeout(ctx: Context) -> None:
    await asyncio.sleep(60)


async def roll_back(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        ctx.log.info("in the transaction")
        await connection.execute("create table undone ()")
        raise ValueError("no")


async def fail_to_commit(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("insert into deferred values (1), (1)")


async def fail_in_sql(ctx: Context) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("select 1/0")


@pytest.mark.parametrize(
    "end",
    [fail, retry, snooze, break_, cancel_itself, exceed_the_timeout, roll_back, fail_to_commit, fail_in_sql],
    ids=lambda end: end.__name__,
)
async def test_the_log_of_an_attempt_that_does_not_complete_is_stored(
    database: str, connection: Connection, registry: Registry, end: Any
) -> None:
    """J17: it is the one that people read."""
    await connection.execute("create table deferred (n int unique deferrable initially deferred)")

    @registry.register("work", max_attempts=2, timeout_seconds=0.2, backoff=0)
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("last words", attempt=job.attempts)
        earlier = await connection_of(ctx)
        if len(earlier) < 2:
            await end(ctx)

    async def connection_of(ctx: Context) -> list[Any]:
        async with ctx.pool.acquire() as other:
            return list(await other.fetch("select from reactor.attempts where job_id = $1", ctx.job.id))

    await run(database, connection, registry)
    said = [message for message in await messages(connection) if message == "last words"]
    attempts = 1 + await connection.fetchval("select count(*) from reactor.attempts")
    assert attempts == {fail: 1, snooze: 3}.get(end, 2)
    assert len(said) == attempts
    distinct = await connection.fetchval("select count(distinct attempt_id) from reactor.logs")
    assert distinct == attempts


async def test_lines_of_a_transaction_are_committed_with_it(
    database: str, connection: Connection, registry: Registry
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        async with ctx.transaction():
            ctx.log.info("in the transaction")
        ctx.log.info("after it")

    await run(database, connection, registry)
    assert await messages(connection) == ["in the transaction", "after it"]


async def test_each_call_of_a_repeated_transaction_is_in_the_log(
    database: str, connection: Connection, registry: Registry
) -> None:
    """A line says why the handler was called again."""
    calls: list[int] = []

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        calls.append(1)
        async with ctx.transaction():
            ctx.log.info(f"call {len(calls)}")
            if len(calls) == 1:
                raise asyncpg.SerializationError("injected")

    await run(database, connection, registry)
    stored = await messages(connection)
    assert stored[0] == "call 1"
    assert stored[-1] == "call 2"
    assert "transaction repeated" in stored


async def test_the_log_of_a_handler_that_does_not_stop_is_stored(
    connection: Connection, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slots, "timings", Timings(give_up_seconds=0.1))
    let_go = asyncio.Event()

    @registry.register("work", timeout_seconds=0.1, max_attempts=1)
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("hanging")
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                ctx.log.warning("not stopping")
        ctx.log.info("too late")

    await submit(connection, "work")
    async with running():
        await until(lambda: connection.fetchval("select state = 'failed' from reactor.jobs"))
        let_go.set()
    assert await messages(connection) == ["hanging", "not stopping"]


async def test_a_cancelled_job_keeps_what_it_had_stored(
    connection: Connection, registry: Registry, running: Running
) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("before")
        try:
            await asyncio.sleep(60)
        finally:
            ctx.log.info("stale")

    await submit(connection, "work")
    async with running():
        await until(lambda: messages(connection))
        await connection.execute("select reactor.cancel(array[1]::bigint[], null)")
        await until(lambda: connection.fetchval("select worker_id is null from reactor.jobs"))
    assert await messages(connection) == ["before"]


async def test_lines_are_visible_while_the_handler_runs(
    connection: Connection, registry: Registry, running: Running
) -> None:
    go_on = asyncio.Event()

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("one")
        await go_on.wait()
        ctx.log.info("two")

    await submit(connection, "work")
    async with running():
        await until(lambda: messages(connection))
        assert await connection.fetchval("select state from reactor.jobs") == "running"
        go_on.set()
        await until(lambda: connection.fetchval("select state = 'completed' from reactor.jobs"))
    assert await messages(connection) == ["one", "two"]


async def test_the_log_of_a_job_that_a_shutdown_interrupts_is_stored(
    connection: Connection, start_pod: StartPod, marks: Marks, row: Row
) -> None:
    job_id = (await submit(connection, "talk")).id
    pod = await start_pod(SHUTDOWN_GRACE_SECONDS=0)
    await until(lambda: marks("started"))
    pod.signal(signal.SIGTERM)
    await until(lambda: has_state(row, job_id, "pending"))
    assert (await messages(connection, job_id))[-1] == "stopping"


# The standard library's logging


async def test_the_standard_librarys_logging_is_captured_on_request(
    database: str, connection: Connection, registry: Registry
) -> None:
    """J17: by attempt and step, in threads and parallel steps; the engine's own records and others' are not."""
    library = logging.getLogger("library")
    library.setLevel(logging.DEBUG)

    def in_thread(name: str) -> None:
        library.warning("in %s", name, extra={"rows": 5})

    @registry.register("work", captures_logging=True)
    async def work(job: Job, ctx: Context) -> Summary:
        library.debug("too fine")
        library.info("format %d", "wrong")
        get_logger("reactor.engine").warning("the engine's own")
        logging.getLogger("reactor.engine").warning("the engine's own")
        ctx.log.info("own line")
        try:
            raise ValueError("inner")
        except ValueError:
            library.exception("with traceback")
        return await ctx.steps([[Step(name, in_thread, name) for name in "ab"]])

    @registry.register("silent")
    async def silent(job: Job, ctx: Context) -> None:
        library.warning("of a handler that does not ask for it")
        ctx.log.info("own line")

    other = (await submit(connection, "silent")).id
    await run(database, connection, registry)
    stored = await lines(connection, "level", "step", "message", "fields", job_id=2)
    assert [line[:3] for line in stored[:3]] == [
        ("info", None, "format %d ('wrong',)"),
        ("info", None, "own line"),
        ("error", None, "with traceback"),
    ]
    assert sorted(line[:3] for line in stored[3:]) == [("warning", "a", "in a"), ("warning", "b", "in b")]
    assert json.loads(stored[3][3]) == {"logger": "library", "rows": 5}
    assert "ValueError: inner" in json.loads(stored[2][3])["exception"]
    assert await messages(connection, other) == ["own line"]


async def test_capturing_does_not_recurse(database: str, connection: Connection, registry: Registry) -> None:
    class Chatty:
        def __str__(self) -> str:
            logging.getLogger("library").warning("being shown")
            return "chatty"

    @registry.register("work", captures_logging=True)
    async def work(job: Job, ctx: Context) -> None:
        logging.getLogger("library").warning("%s", Chatty())

    await run(database, connection, registry)
    assert await messages(connection) == ["chatty"]


async def test_records_of_structlog_are_captured_with_their_values(
    database: str, connection: Connection, registry: Registry
) -> None:
    chain: list[Any] = [structlog.stdlib.add_log_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
    wrapped = structlog.wrap_logger(logging.getLogger("app"), chain, wrapper_class=structlog.stdlib.BoundLogger)

    @registry.register("work", captures_logging=True)
    async def work(job: Job, ctx: Context) -> None:
        wrapped.warning("of the app", rows=3)

    await run(database, connection, registry)
    [(message, fields)] = await lines(connection, "message", "fields")
    assert message == "of the app"
    assert json.loads(fields) == {"logger": "app", "rows": 3}


async def test_an_attempt_captures_nothing_of_the_next_one(
    connection: Connection, registry: Registry, running: Running
) -> None:
    """The task of an attempt is started by the one that ended before it."""

    @registry.register("captured", captures_logging=True)
    async def captured(job: Job, ctx: Context) -> None:
        logging.getLogger("library").warning("captured")

    @registry.register("silent")
    async def silent(job: Job) -> None:
        logging.getLogger("library").warning("not captured")

    async with running("none of these", concurrency=1) as loop:
        jobs = []
        for job_type in ("captured", "silent") * 50:
            job = await claim_one(connection, loop.worker, (await submit(connection, job_type)).id)
            assert job
            jobs.append(job)
        loop.slots.take(jobs)
        await until(lambda: connection.fetchval("select bool_and(state = 'completed') from reactor.jobs"))
    rows = await connection.fetch("select job_type, message from reactor.logs join reactor.jobs j on j.id = job_id")
    assert [tuple(row) for row in rows] == [("captured", "captured")] * 50


# Limits and levels


async def test_a_loop_that_logs_says_how_many_lines_were_left_out(
    connection: Connection, registry: Registry, running: Running
) -> None:
    """J17"""

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        for number in range(1, 2001):
            ctx.log.info(str(number))

    await submit(connection, "work")
    async with running(logs=LogOptions(max_lines=500)):
        await until(lambda: connection.fetchval("select state = 'completed' from reactor.jobs"))
    stored = await messages(connection)
    assert stored[:400] == [str(number) for number in range(1, 401)]
    assert stored[400] == "1,500 lines left out"
    assert stored[401:] == [str(number) for number in range(1901, 2001)]


@pytest.mark.parametrize(
    ("options", "registered", "expected"),
    [
        (LogOptions(), {}, ["info", "error"]),
        (LogOptions("debug"), {}, ["debug", "info", "error"]),
        (LogOptions("error"), {}, ["error"]),
        (LogOptions("off"), {}, []),
        (LogOptions("off"), {"log_level": "debug"}, ["debug", "info", "error"]),
        (LogOptions("debug"), {"log_level": "off"}, []),
        (LogOptions("off", captures_logging=True), {}, []),
    ],
)
async def test_the_level_decides_what_is_stored(
    connection: Connection,
    registry: Registry,
    running: Running,
    options: LogOptions,
    registered: dict[str, Any],
    expected: list[str],
) -> None:
    @registry.register("work", **registered)
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.debug("debug")
        ctx.log.info("info")
        ctx.log.error("error")
        logging.getLogger("library").error("captured")

    await submit(connection, "work")
    async with running(logs=options):
        await until(lambda: connection.fetchval("select state = 'completed' from reactor.jobs"))
    assert await messages(connection) == expected


async def test_what_is_stored_is_still_printed(database: str, connection: Connection, registry: Registry) -> None:
    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("both", n=1)

    with structlog.testing.capture_logs() as printed:
        await run(database, connection, registry)
    [event] = [event for event in printed if event["event"] == "both"]
    assert (event["job_id"], event["job_type"], event["n"], event["log_level"]) == (1, "work", 1, "info")
    assert await messages(connection) == ["both"]


def test_an_invalid_level_is_refused_when_the_handler_is_registered(registry: Registry) -> None:
    with pytest.raises(HandlerInvalid, match="log_level"):

        @registry.register("work", log_level="loud")  # type: ignore[arg-type]
        async def work() -> None: ...


async def test_hooks_can_log_too(database: str, connection: Connection, registry: Registry) -> None:
    @registry.around
    async def around(job: Job, ctx: Context) -> AsyncIterator[None]:
        ctx.log.info("before")
        yield
        ctx.log.info("after")

    @registry.register("work")
    async def work(job: Job, ctx: Context) -> None:
        ctx.log.info("work")

    await run(database, connection, registry)
    assert await messages(connection) == ["before", "work", "after"]


def test_the_handler_that_captures_is_installed_once() -> None:
    from reactor.handlers.stored_log import capture_logging

    for _ in range(2):
        capture_logging()
    assert sum(isinstance(handler, CaptureHandler) for handler in logging.getLogger().handlers) == 1
