"""A server of its own, two pods on links of their own, and a workload, for one fault."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reactor.database.connection import connect
from reactor.database.failures import DRIVER_ERRORS
from reactor.errors import ReactorError
from tests.chaos.judgement import judge, read_trace
from tests.chaos.workload import Workload
from tests.support.link import Link, link_to
from tests.support.pgbouncer import Pooler
from tests.support.pods import Pod
from tests.support.postgres import Postgres
from tests.support.until import until

# Generous: they only bound how long a test takes that fails.
START_SECONDS = 90
RETURN_SECONDS = 90
DRAIN_SECONDS = 120


@dataclass
class World:
    postgres: Postgres
    """The server that is judged: a failover or a restore changes it."""
    folder: Path
    """For files of the server's account."""
    scratch: Path
    """For those of the pods: the trace and their logs."""
    workload: Workload
    lease_seconds: float
    resources: AsyncExitStack
    database: str = "postgres"
    pods: list[Pod] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    """One per pod, to the server."""
    excused: set[int] = field(default_factory=set)
    since: float = 0.0
    pooler: Pooler | None = None
    count: int = 0
    """Of the jobs that were judged."""
    _producer: "asyncio.Task[None] | None" = None

    @property
    def url(self) -> str:
        """Past all links."""
        return self.postgres.url(self.database)

    async def start_pod(
        self, *, url: str | None = None, host: str = "127.0.0.1", prefix: Sequence[str] = (), **settings: str
    ) -> Pod:
        link = await self.resources.enter_async_context(link_to(self.postgres.port, host))
        self.links.append(link)
        ours = {
            "REACTOR_LEASE_SECONDS": str(self.lease_seconds),
            "REACTOR_HEARTBEAT_SECONDS": "1",
            "REACTOR_POLL_SECONDS": "2",
        }
        address = self.postgres.url(self.database, link.port).replace("127.0.0.1", host)
        pod = Pod(
            url or address,
            self.scratch,
            len(self.pods) + 1,
            ["--app", "chaos_handlers", "--concurrency", "10"],
            ours | {"REACTOR_LISTEN_URL": address} | settings,
            prefix,
        )
        self.pods.append(pod)
        self.resources.callback(pod.end)
        return pod

    async def ready(self) -> None:
        for pod in self.pods:
            await until(lambda pod=pod: pod.events("worker started"), START_SECONDS)

    async def begin(self, *, seconds: float) -> None:
        """Submits jobs that last this long, goes on submitting short ones, and returns when both kinds run."""
        await self.workload.submit(seconds=seconds)
        self._producer = asyncio.create_task(self.workload.keep_submitting())
        await self.progresses()

    async def progresses(self) -> None:
        """Until jobs complete again that were submitted from now on."""
        newest = await until(lambda: self.fetchval("select max(id) from reactor.jobs"), RETURN_SECONDS)
        done = f"select count(*) > 10 from reactor.jobs where id > {newest} and state = 'completed'"
        await until(lambda: self.fetchval(done), RETURN_SECONDS)

    async def finish(self) -> list[str]:
        """Ends the submissions, waits until all jobs have ended, and judges."""
        await self.stop_submitting()
        idle = (
            "select not exists (select from reactor.jobs where finished_at is null) "
            "and not exists (select from reactor.jobs where worker_id is not null)"
        )
        deadline = time.monotonic() + DRAIN_SECONDS
        while not await self.fetchval(idle) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        async with connect(self.url, name="judge") as connection:
            self.count = await connection.fetchval("select count(*) from reactor.jobs")
            may_die = self.workload.max_attempts > 1
            return await judge(
                connection,
                read_trace(self.scratch / "marks"),
                self.workload.acknowledged,
                alive=self._workers() if may_die else None,
                bereft=self._bereft_pods() if may_die else (),
                excused=self.excused,
                since=self.since,
            )

    def _workers(self) -> list[int]:
        return [pid for pod in self.pods if pod.process.poll() is None for pid in pod.workers]

    def _bereft_pods(self) -> list[str]:
        alive = self._workers()
        return [pod.name for pod in self.pods if any(e["pid"] not in alive for e in pod.events("worker started"))]

    async def stop_submitting(self) -> None:
        if self._producer is not None:
            self._producer.cancel()
            await asyncio.gather(self._producer, return_exceptions=True)
            self._producer = None

    async def fetchval(self, statement: str) -> object:
        """None while the server can't answer."""
        try:
            async with asyncio.timeout(5), connect(self.url, name="observer", timeout_seconds=5) as connection:
                return await connection.fetchval(statement)
        except (*DRIVER_ERRORS, ReactorError, TimeoutError):
            return None


@asynccontextmanager
async def world_on(
    template: Postgres, folder: Path, scratch: Path, *, lease_seconds: float, max_attempts: int, **options: str
) -> AsyncIterator[World]:
    """`options`: of the server, which is a copy of the migrated template."""
    async with AsyncExitStack() as resources:
        postgres = await template.copy_to(folder / "primary")
        postgres.configure(**options)
        resources.push_async_callback(postgres.stop, "immediate")
        await postgres.start()
        workload = Workload(postgres.url(), max_attempts)
        world = World(postgres, folder, scratch, workload, lease_seconds, resources)
        try:
            yield world
        finally:
            await world.stop_submitting()
