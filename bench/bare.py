"""The upper limit of our statements: CLAIM and SETTLE in a bare loop, without handlers, tasks or contexts.

Started by drain.py. Each statement has its own connection, and the next batch is claimed while the last one is settled.
"""

import asyncio
import sys
import time
from pathlib import Path

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection, connect
from reactor.lifecycle.lease import Worker, register_worker

Batch = list[asyncpg.Record]


async def claim(connection: Connection, worker: Worker) -> Batch:
    records = await connection.fetch(statements.CLAIM, worker.id, worker.capacity, None, ["noop"], [None], None, None)
    # A last row without an id says that there may be more.
    return [record for record in records if record["id"] is not None]


async def settle(connection: Connection, batch: Batch) -> None:
    held = sorted((record["id"], record["attempt_id"]) for record in batch)
    await connection.fetch(
        statements.SETTLE,
        [job_id for job_id, _ in held],
        [attempt_id for _, attempt_id in held],
        ["completed"] * len(held),
        *[None] * 6,
    )


async def drain(claiming: Connection, settling: Connection, worker: Worker) -> None:
    batches: asyncio.Queue[Batch] = asyncio.Queue(2)

    async def claim_all() -> None:
        while batch := await claim(claiming, worker):
            await batches.put(batch)
        await batches.put([])

    async def settle_all() -> None:
        while batch := await batches.get():
            await settle(settling, batch)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(claim_all())
        tasks.create_task(settle_all())


async def run_single_jobs(
    claiming: Connection, settling: Connection, listening: Connection, worker: Worker, starts: Path
) -> None:
    """Records the start of each job, until it is killed."""
    notified = asyncio.Event()
    await listening.add_listener("reactor_jobs", lambda *_: notified.set())
    with starts.open("a", buffering=1) as log:
        while True:
            batch = await claim(claiming, worker)
            now = time.time_ns()
            for record in batch:
                log.write(f"{record['payload']}\t{now}\n")
            if batch:
                await settle(settling, batch)
            await notified.wait()
            notified.clear()


async def main(url: str, capacity: int, starts: Path | None) -> None:
    worker = Worker("bare", {"noop": None}, capacity=capacity)
    async with connect(url, name="claim") as claiming, connect(url, name="settle") as settling:
        await register_worker(claiming, worker, 3600)
        if starts is None:
            await drain(claiming, settling, worker)
        else:
            async with connect(url, name="listen") as listening:
                await run_single_jobs(claiming, settling, listening, worker, starts)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None))
