"""Runs jobs in an application's own process, next to everything else on its event loop."""

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
from reactor.database.revision import check_revision, check_writable
from reactor.errors import AppInvalid, SettingsInvalid
from reactor.handlers import registry as registries
from reactor.handlers.job_types import publish_job_types
from reactor.handlers.limits import declare_limits
from reactor.handlers.registry import Registry
from reactor.job import JobState
from reactor.job_log import LogOptions
from reactor.lifecycle.lease import Worker, register_worker, split_slots
from reactor.lifecycle.release import after_shutdown
from reactor.log import get_logger
from reactor.pod.heartbeat import Heartbeat
from reactor.pod.sweeper import keep_sweeping
from reactor.schedules.declaration import declare
from reactor.worker.claim_loop import ClaimLoop
from reactor.worker.options import WorkerOptions
from reactor.worker.running_attempts import RunningAttempts

log = get_logger(__name__)

_INTERRUPT_SECONDS = 1.0
_BROKEN_PAUSE_SECONDS = 1.0


class Reactor:
    """Runs jobs for the length of a block: `async with Reactor(url): ...`

    Handlers run in the application's process: one that kills it takes the application with it, and one that blocks the
    interpreter can't be stopped. docs/embedding.md lists the consequences.
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
        logs: LogOptions | None = None,
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
        self._queues, self._queue_slots = split_slots(queues)
        self._concurrency = concurrency
        self._options = WorkerOptions(
            url, listen_url or url, poll_seconds, heartbeat_seconds, logs=logs or LogOptions()
        )
        self._running_attempts = RunningAttempts(concurrency)
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
        """It receives notifications, and its lease is being renewed."""
        return not self._running.done() and self._claim_loop.is_listening and self._guard.heartbeat.is_well

    async def run_job(self, job_id: int) -> JobState | None:
        """Runs this one job now. None: it can't be claimed, since another worker has it or it is not due."""
        return await self._claim_loop.run_job(job_id)

    async def __aenter__(self) -> Self:
        if self._registry.is_empty:
            raise AppInvalid(
                "this application", "no handler is registered", "Import the modules that register handlers first."
            )
        async with connect(self._url, name=f"reactor register {self._pod}", prepares=False) as connection:
            await check_revision(connection)
            await check_writable(connection)
            self._options = replace(self._options, prepares=not await is_pooled(connection))
            self._claim_loop = await self._register(connection)
            await declare(connection, self._registry.schedules)
            await declare_limits(connection, self._registry.limits)
        self._loop = asyncio.get_running_loop()
        heartbeat = Heartbeat(
            self._url, self._pod, self._lease_seconds, self._heartbeat_seconds, self._on_lease_lost, self._summary
        )
        self._guard = _Guard(heartbeat, self._url, self._pod, self._heartbeat_seconds)
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
            started = self._running_attempts.read()
            self._running.cancel()
            await asyncio.wait([self._running])
            await asyncio.to_thread(self._guard.stop)
            async with connect(self._url, name=f"reactor recovery {self._pod}", prepares=False) as connection:
                worker_id = self._claim_loop.worker.id
                await after_shutdown(connection, worker_id, started, fail=False, counts=self._summary(worker_id))
            self._running_attempts.close()
        if not self._running.cancelled():
            self._running.result()

    async def _run(self) -> None:
        """A worker may end because of a lost lease or a bug of ours; the application continues with another one."""
        while True:
            worker_id = self._claim_loop.worker.id
            self._guard.heartbeat.add(worker_id)
            try:
                await self._claim_loop.run()
            except Exception:
                if self._stopping:
                    raise
                log.exception("internal error in worker")
                await asyncio.sleep(_BROKEN_PAUSE_SECONDS)
            if self._stopping:
                return
            await self._replace_worker(worker_id)
            self._guard.heartbeat.remove(worker_id)

    async def _replace_worker(self, worker_id: UUID) -> None:
        connection = ReconnectingConnection(self._url, f"reactor register {self._pod}")
        started, counts = self._running_attempts.read(), self._summary(worker_id)
        why = "Its worker ended while it ran: the lease could not be renewed, or an internal error."
        await connection.retry(lambda c: after_shutdown(c, worker_id, started, fail=False, counts=counts, why=why))
        self._running_attempts.clear()
        self._claim_loop, _ = await connection.retry(self._register)
        await connection.close()

    async def _register(self, connection: Connection) -> ClaimLoop:
        worker = Worker(self._pod, self._registry.job_types, self._queues, self._concurrency, slots=self._queue_slots)
        await register_worker(connection, worker, self._lease_seconds)
        await publish_job_types(connection, worker.id, self._registry)
        return ClaimLoop(self._options, self._registry, worker, self._running_attempts)

    def _summary(self, worker_id: UUID) -> str | None:
        """Called in the guard's thread, too."""
        claim_loop = self._claim_loop
        return json.dumps(claim_loop.summary()) if claim_loop.worker.id == worker_id else None

    def _on_lease_lost(self, worker_id: UUID) -> None:
        self._loop.call_soon_threadsafe(self._claim_loop.interrupt)


class _Guard:
    """Heartbeat and sweeper in a thread with an event loop of its own: a handler that blocks the application's loop
    does not lose the lease."""

    def __init__(self, heartbeat: Heartbeat, url: str, pod: str, heartbeat_seconds: float) -> None:
        self.heartbeat = heartbeat
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
            helpers = [
                tasks.create_task(self.heartbeat.run()),
                tasks.create_task(keep_sweeping(self._url, self._pod, self._heartbeat_seconds)),
            ]
            await self._stop.wait()
            for helper in helpers:
                helper.cancel()


async def run_job(reactor: Reactor, job_id: int) -> JobState | None:
    """The same as `reactor.run_job`."""
    return await reactor.run_job(job_id)
