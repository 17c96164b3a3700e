"""Handlers for the pods of tests/chaos. Each writes a line when it starts, while it works, and when it stops."""

import asyncio
import os
import select
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from reactor import Context, Job, Step, Summary, register

_TICK_SECONDS = 0.1


def trace(word: str, job: Job) -> None:
    """One write of one line, which no other process can split. The monotonic clock is that of the machine."""
    line = f"{word} {job.id} {job.attempt_id} {os.getpid()} {time.monotonic():.6f} {job.scope or '-'}\n"
    descriptor = os.open(Path(os.environ["POD_MARKS"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@contextmanager
def traced(job: Job) -> Iterator[None]:
    """Also if it fails or is cancelled. A process that dies writes nothing."""
    trace("start", job)
    try:
        yield
    finally:
        trace("stop", job)


@asynccontextmanager
async def at_work(job: Job) -> AsyncIterator[None]:
    with traced(job):
        await _work(job)
        yield


async def _work(job: Job) -> None:
    """Takes `seconds`, and leaves a side effect every tenth of a second."""
    end = time.monotonic() + float(job.payload.get("seconds", 0.1))
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(_TICK_SECONDS, left))
        trace("tick", job)


@register("plain")
async def plain(job: Job) -> dict[str, int]:
    async with at_work(job):
        return {"of": job.id}


@register("thread")
def thread(job: Job) -> None:
    with traced(job):
        end = time.monotonic() + float(job.payload.get("seconds", 0.1))
        while time.monotonic() < end:
            select.select([], [], [], _TICK_SECONDS)  # libfaketime breaks time.sleep
            trace("tick", job)


@register("ledger")
async def ledger(job: Job, ctx: Context) -> None:
    """A row in the ledger, in one commit with the end of the job."""
    with traced(job):
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger (job_id) values ($1)", job.id)
            await _work(job)


@register("family")
async def family(job: Job, ctx: Context) -> None:
    """Two children: one in the transaction, with a row in the ledger, one when the job is settled."""
    with traced(job):
        await ctx.chain("plain", {"child": "settled"}, max_attempts=job.quota)
        async with ctx.transaction() as connection:
            await connection.execute("insert into ledger (job_id) values ($1)", job.id)
            await ctx.chain("ledger", {"child": "transaction"}, max_attempts=job.quota)
            await _work(job)


@register("stepwise")
async def stepwise(job: Job, ctx: Context) -> Summary:
    async with at_work(job):
        return await ctx.steps([[Step(f"step-{n}", asyncio.sleep, 0.02) for n in range(3)], [Step("last", _nothing)]])


async def _nothing() -> None:
    pass


@register("poison")
async def poison(job: Job) -> None:
    """Returns, and leaves a process that can't go on: without its files the end of the job is never committed."""
    async with at_work(job):
        os.closerange(3, 1024)
