"""Runs jobs inside an application's own process, beside whatever else its event loop does."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self
from uuid import UUID

from reactor.concurrency import first_of
from reactor.counts import Counts
from reactor.database.connection import Connection, connect, is_pooled
from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.revision import check_revision
from reactor.errors import AppInvalid, SettingsInvalid
from reactor.handlers import registry as registries
from reactor.handlers.registry import Registry
from reactor.job import JobState
from reactor.lifecycle.lease import Worker, register_worker
from reactor.log import get_logger
from reactor.pod.heartbeat import Keeper
from reactor.pod.recovery import after_shutdown
from reactor.pod.sweeper import keep_sweeping
from reactor.schedules.declaration import declare
from reactor.worker.claim_loop import ClaimLoop, WorkerOptions
from reactor.worker.running_attempts import Begun

log = get_logger(__name__)

_INTERRUPT_SECONDS = 1.0
_BROKEN_PAUSE_SECONDS = 1.0


class Reactor:
    """`async with Reactor(url):` jobs are run until the block is left.

    There is no process of its own to fall back on: a handler that kills the process takes the application with it, and
    one that blocks the interpreter can't be ended. docs/embedding.md tells what that costs.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        registry: Registry = registries.default,
        queues: Sequence[str] = (),
        concurrency: int = 10,
        pod: str | None = None,
        listen_url: str | None = None,
        poll_seconds: float = 10,
        lease_seconds: float = 60,
        heartbeat_seconds: float = 15,
        grace_seconds: float = 20,
    ) -> None:
        url = url or os.environ.get("REACTOR_DATABASE_URL")
        if not url:
            raise SettingsInvalid(["Reactor(url) needs the address of a database, or REACTOR_DATABASE_URL."])
        if heartbeat_seconds * 2 > lease_seconds:
            raise SettingsInvalid(["heartbeat_seconds must be at most half of lease_seconds."])
        self._url = url
        self._registry = registry
        self._lease_seconds = lease_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._grace_seconds = grace_seconds
        self._pod = pod or os.environ.get("REACTOR_POD_ID") or os.environ.get("HOSTNAME") or socket.gethostname()
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._options = WorkerOptions(url, listen_url or url, poll_seconds, heartbeat_seconds)
        self._begun = Begun(concurrency)
        self._loop: asyncio.AbstractEventLoop
        self._claim_loop: ClaimLoop
        self._running: asyncio.Task[None]
        self._stopping = False
        self._guard: _Guard

    @property
    def counts(self) -> Counts:
        return self._claim_loop.counts

    @property
    def is_well(self) -> bool:
        """Listening, and its lease is being kept."""
        return not self._running.done() and self._claim_loop.is_listening and self._guard.keeper.is_well

    async def run_job(self, job_id: int) -> JobState | None:
        """Runs this one job now. None: it can't be had, since somebody else has it or it is not due."""
        return await self._claim_loop.run_job(job_id)

    async def __aenter__(self) -> Self:
        if self._registry.is_empty:
            raise AppInvalid("this application", "no handler is registered", "Import the modules that do, first.")
        async with connect(self._url, name=f"reactor register {self._pod}", prepares=False) as connection:
            await check_revision(connection)
            self._options = replace(self._options, prepares=not await is_pooled(connection))
            self._claim_loop = await self._register(connection)
            await declare(connection, self._registry.schedules)
        self._loop = asyncio.get_running_loop()
        keeper = Keeper(
            self._url, self._pod, self._lease_seconds, self._heartbeat_seconds, self._on_lease_lost, self._summary
        )
        self._guard = _Guard(keeper, self._url, self._pod, self._heartbeat_seconds)
        self._guard.start()
        self._running = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._claim_loop.stop()
        try:
            await first_of(self._running, asyncio.sleep(self._grace_seconds))
            if not self._running.done():
                self._claim_loop.interrupt()
                await first_of(self._running, asyncio.sleep(_INTERRUPT_SECONDS))
        finally:
            begun = self._begun.read()
            self._running.cancel()
            await asyncio.wait([self._running])
            await asyncio.to_thread(self._guard.stop)
            async with connect(self._url, name=f"reactor tidy {self._pod}", prepares=False) as connection:
                worker_id = self._claim_loop.worker.id
                await after_shutdown(connection, worker_id, begun, fail=False, counts=self._summary(worker_id))
            self._begun.close()
        if not self._running.cancelled():
            self._running.result()

    async def _run(self) -> None:
        """A worker may end, by a lost lease or a bug of ours; the application goes on with another one."""
        while True:
            worker_id = self._claim_loop.worker.id
            self._guard.keeper.watch(worker_id)
            try:
                await self._claim_loop.run()
            except Exception:
                if self._stopping:
                    raise
                log.exception("worker broke")
                await asyncio.sleep(_BROKEN_PAUSE_SECONDS)
            if self._stopping:
                return
            self._guard.keeper.leave(worker_id)
            line = ReconnectingConnection(self._url, f"reactor register {self._pod}")
            begun, counts = self._begun.read(), self._summary(worker_id)
            await line.retry(lambda c: after_shutdown(c, worker_id, begun, fail=False, counts=counts))  # noqa: B023
            self._begun.clear()
            self._claim_loop, _ = await line.retry(self._register)
            await line.close()

    async def _register(self, connection: Connection) -> ClaimLoop:
        worker = Worker(self._pod, self._registry.job_types, self._queues, self._concurrency)
        await register_worker(connection, worker, self._lease_seconds)
        return ClaimLoop(self._options, self._registry, worker, self._begun)

    def _summary(self, worker_id: UUID) -> str | None:
        """Asked in the guard's thread, too."""
        claim_loop = self._claim_loop
        return json.dumps(claim_loop.summary()) if claim_loop.worker.id == worker_id else None

    def _on_lease_lost(self, worker_id: UUID) -> None:
        self._loop.call_soon_threadsafe(self._claim_loop.interrupt)


class _Guard:
    """Heartbeat and sweeper in a thread with an event loop of its own: a handler that blocks the application's loop
    does not cost it its lease."""

    def __init__(self, keeper: Keeper, url: str, pod: str, heartbeat_seconds: float) -> None:
        self.keeper = keeper
        self._url = url
        self._pod = pod
        self._heartbeat_seconds = heartbeat_seconds
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._guard()), daemon=True, name="reactor guard")

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _guard(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._started.set()
        async with asyncio.TaskGroup() as tasks:
            duties = [
                tasks.create_task(self.keeper.run()),
                tasks.create_task(keep_sweeping(self._url, self._pod, self._heartbeat_seconds)),
            ]
            await self._stop.wait()
            for duty in duties:
                duty.cancel()


async def run_job(reactor: Reactor, job_id: int) -> JobState | None:
    """The same as `reactor.run_job`, for those who look for it by this name."""
    return await reactor.run_job(job_id)
