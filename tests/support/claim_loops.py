"""Claim loops in this process, without a pod."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from reactor.database.connection import connect
from reactor.handlers.registry import Registry
from reactor.lifecycle.lease import Worker, register_worker
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.options import WorkerOptions
from reactor.worker.running_attempts import RunningAttempts
from tests.support.until import until

Running = Callable[..., AbstractAsyncContextManager[ClaimLoop]]
"""The fixture `running`: `run` with the test's database and registry."""


async def register(
    database: str,
    registry: Registry,
    *queues: str,
    concurrency: int = 10,
    slots: Mapping[str, int] | None = None,
    running_attempts: RunningAttempts | None = None,
    **options: Any,
) -> ClaimLoop:
    """A claim loop of a new worker; `queues`: those that it claims from; `options`: of WorkerOptions."""
    worker = Worker("pod-1", registry.job_types, queues, capacity=concurrency, slots=dict(slots or {}))
    async with connect(database, name="test") as connection:
        await register_worker(connection, worker, 600)
    worker_options = WorkerOptions(**({"url": database, "listen_url": database} | options))
    return ClaimLoop(worker_options, registry, worker, running_attempts)


@asynccontextmanager
async def run(database: str, registry: Registry, *queues: str, **options: Any) -> AsyncIterator[ClaimLoop]:
    """Runs a claim loop until the block is left, with the arguments of `register`."""
    claim_loop = await register(database, registry, *queues, **options)
    task = asyncio.create_task(claim_loop.run())
    try:
        await until(lambda: claim_loop.is_listening or task.done())
        yield claim_loop
    finally:
        claim_loop.interrupt()
        async with asyncio.timeout(20):
            await task
