"""Handlers for the pods that tests start. They leave marks in a file, which outlives the process."""

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any

from reactor import Context, Job, Step, Summary, SyncContext, register


def mark(job: Job, word: str) -> None:
    line = f"{word} {job.id} {job.attempts} {os.getpid()} {time.time()}\n"
    descriptor = os.open(Path(os.environ["POD_MARKS"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def seconds(job: Job) -> float:
    return float(job.payload.get("seconds", 60))


@register("noop")
async def noop(job: Job) -> None:
    mark(job, "started")


@register("await")
async def await_(job: Job, ctx: Context) -> None:
    mark(job, "started")
    await asyncio.sleep(seconds(job))
    mark(job, "ended")


@register("talk")
async def talk(job: Job, ctx: Context) -> None:
    """Logs a line at its start and when it is stopped."""
    ctx.log.info("talking")
    mark(job, "started")
    try:
        await asyncio.sleep(seconds(job))
    finally:
        ctx.log.warning("stopping")


@register("held")
async def held(job: Job) -> None:
    """Ends when the test creates the file `let-go`."""
    mark(job, "started")
    while not Path(os.environ["POD_MARKS"]).with_name("let-go").exists():
        await asyncio.sleep(0.01)


@register("block")
async def block(job: Job) -> None:
    """Blocks the event loop."""
    mark(job, "started")
    time.sleep(seconds(job))  # noqa: ASYNC251
    mark(job, "ended")


@register("thread")
def thread(job: Job, ctx: SyncContext) -> None:
    mark(job, "started")
    time.sleep(seconds(job))
    mark(job, "ended")


@register("spin")
def spin(job: Job) -> None:
    """Pure Python that never waits."""
    mark(job, "started")
    end = time.monotonic() + seconds(job)
    while time.monotonic() < end:
        pass
    mark(job, "ended")


@register("gil")
def gil(job: Job) -> None:
    """C code that holds the interpreter's lock, so that no other thread of the process runs."""
    mark(job, "started")
    ctypes.PyDLL(None).usleep(int(seconds(job) * 1e6))
    mark(job, "ended")


@register("die")
async def die(job: Job) -> None:
    mark(job, "started")
    await asyncio.sleep(0.05)  # so that other jobs of the same claim have started
    os.kill(os.getpid(), signal.SIGKILL)


@register("exit")
async def leave(job: Job) -> None:
    mark(job, "started")
    os._exit(3)


@register("close_files")
async def close_files(job: Job) -> None:
    """Returns, but its process can neither commit that nor continue."""
    mark(job, "started")
    await asyncio.sleep(0.05)  # so that other jobs of the same claim have started
    os.closerange(3, 1000)


@register("stuck", timeout_seconds=0.5, backoff=0)
def stuck(job: Job) -> dict[str, Any] | None:
    """The first attempt does not end; the next ones do."""
    mark(job, "started")
    if job.attempts == 1:
        time.sleep(600)
    return {"pid": os.getpid()}


@register("hog", timeout_seconds=0.5, backoff=0)
async def hog(job: Job) -> None:
    """The first attempt blocks the event loop forever."""
    mark(job, "started")
    if job.attempts == 1:
        time.sleep(600)  # noqa: ASYNC251


@register("fails", max_attempts=1)
async def fails(job: Job) -> None:
    raise ValueError("it fails")


@register("ledger", max_attempts=100, backoff=0.05)
async def ledger(job: Job, ctx: Context) -> None:
    """A row in the ledger, once: it commits with the job's end."""
    async with ctx.transaction() as connection:
        await connection.execute("insert into ledger (job_id) values ($1)", job.id)


@register("slow_ledger", backoff=0.05)
async def slow_ledger(job: Job, ctx: Context) -> None:
    """Only the first attempt is slow."""
    mark(job, "started")
    async with ctx.transaction() as connection:
        await connection.execute("insert into ledger (job_id) values ($1)", job.id)
        await asyncio.sleep(seconds(job) if job.attempts == 1 else 0)
    mark(job, "ended")


@register("long_query")
async def long_query(job: Job, ctx: Context) -> None:
    """Only the first attempt is slow, and holds a lock meanwhile."""
    mark(job, "started")
    first = len(Path(os.environ["POD_MARKS"]).read_text().splitlines()) == 1
    async with ctx.transaction() as connection:
        await connection.execute("select pg_advisory_xact_lock(7)")
        if first:
            mark(job, "locked")
            await connection.execute("select pg_sleep(600)")
    mark(job, "ended")


@register("fan_out", max_attempts=100, backoff=0.05)
async def fan_out(job: Job, ctx: Context) -> None:
    """A row in the ledger, and a child that was not in the plan."""
    async with ctx.transaction() as connection:
        await connection.execute("insert into ledger (job_id) values ($1)", job.id)
        await ctx.chain("ledger", {"extra": True})
        await asyncio.sleep(0.02)


@register("parent")
async def parent(job: Job, ctx: Context) -> None:
    """So many children that its end is written apart."""
    for _ in range(1001):
        await ctx.chain("noop")


@register("fan_in", max_attempts=100, backoff=0.05)
async def fan_in(job: Job, ctx: Context) -> dict[str, int]:
    async with ctx.transaction() as connection:
        await connection.execute("insert into ledger (job_id) values ($1)", job.id)
    return {"leaves": sum(one.state == "completed" for one in await ctx.upstream())}


@register("forks")
async def forks(job: Job) -> None:
    """Leaves a process behind that inherits the worker's open files; with `escapes`, in its own process group."""
    first = not Path(os.environ["POD_MARKS"]).exists()
    mark(job, "forks")
    if first and os.fork() == 0:
        if job.payload.get("escapes"):
            os.setsid()
        mark(job, "forked")
        time.sleep(30)  # noqa: ASYNC251
        os._exit(0)
    await asyncio.sleep(seconds(job))


@register("orphan")
async def orphan(job: Job) -> None:
    """Leaves a process that ends at once, after its parent has."""
    mark(job, "started")
    if (child := os.fork()) == 0:
        if os.fork() == 0:
            mark(job, "orphan")
        os._exit(0)
    os.waitpid(child, 0)  # noqa: ASYNC222


@register("simulation")
async def simulation(job: Job, ctx: Context) -> Summary:
    """Two models over three days. The first time, one of them does not end on the second day."""

    async def run_model(day: int, model: str) -> None:
        mark(job, f"day{day}/{model}")
        if (day, model) == (2, "slow") and Path(os.environ["POD_MARKS"]).read_text().count("day2/slow") == 1:
            await asyncio.sleep(600)

    return await ctx.steps(
        [[Step(f"day{day}/{model}", run_model, day, model) for model in ("quick", "slow")] for day in (1, 2, 3)]
    )
