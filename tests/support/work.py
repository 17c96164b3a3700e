"""Handlers that tests can watch and let go."""

import asyncio
import time

from reactor import Context, Job, Registry, SyncContext
from reactor.pod.in_process import Reactor
from tests.support.until import until


class Work:
    """`work` waits, `deaf` ignores a cancel, `thread` notices one at its next call."""

    def __init__(self, registry: Registry) -> None:
        self.started: list[int] = []
        self.cancelled: dict[int, float] = {}
        self.ended: list[int] = []
        self.let_go = asyncio.Event()
        self.registry = registry

        @self.registry.register("work")
        async def work(job: Job, ctx: Context) -> None:
            self.started.append(job.id)
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled[job.id] = time.monotonic()
                raise
            self.ended.append(job.id)

        @self.registry.register("deaf")
        async def deaf(job: Job, ctx: Context) -> None:
            self.started.append(job.id)
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.cancelled[job.id] = time.monotonic()
            self.ended.append(job.id)

        @self.registry.register("thread")
        def thread(job: Job, ctx: SyncContext) -> None:
            self.started.append(job.id)
            try:
                while True:
                    time.sleep(0.01)
                    ctx.check()
            finally:
                self.cancelled[job.id] = time.monotonic()


async def three_polls(reactor: Reactor) -> None:
    """Waits for three polls, each of which would claim a job that can be claimed."""
    polls = reactor.counts.polls
    await until(lambda: reactor.counts.polls >= polls + 3)
