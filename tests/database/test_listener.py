"""Missed notifications: jobs are run within the documented time, whatever happens to the listener."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reactor import Job, Registry
from reactor.database.connection import Connection, connect
from reactor.database.listener import Listener, Timings
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from reactor.pod.in_process import Reactor

Row = Callable[[int], Awaitable[dict[str, Any]]]
Until = Callable[..., Awaitable[Any]]


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    return registry


async def insert(connection: Connection) -> int:
    job_id: int = await connection.fetchval("insert into reactor.jobs (job_type) values ('work') returning id")
    return job_id


async def run_one(connection: Connection, until: Until) -> None:
    job_id = await insert(connection)

    async def is_completed() -> bool:
        return bool(await connection.fetchval("select state = 'completed' from reactor.jobs where id = $1", job_id))

    await until(is_completed)


def is_at_rest(reactor: Reactor) -> bool:
    """The rechecks after the last notification, and after the listener's start, are over."""
    return reactor.is_well and reactor._claim_loop.is_at_rest


async def test_a_notification_brings_a_job_at_once(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    """With the poll off: every job is found through its notification."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        for _ in range(20):
            await run_one(connection, until)
        await until(lambda: reactor.counts.wakes)
        assert reactor.counts.polls == 0
        assert reactor.counts.missed_wakes == 0


async def test_a_listener_whose_session_is_ended_comes_back(
    database: str, connection: Connection, registry: Registry, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And claims at once, since it received nothing in between; long before its watchdog would have noticed."""
    monkeypatch.setattr(Listener, "timings", Timings(watch_seconds=60.0))
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        for _ in range(2):
            await until(lambda: is_at_rest(reactor))
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name like 'reactor listen%'"
            )
            await run_one(connection, until)


async def test_without_triggers_the_poll_finds_the_work_and_counts_it(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    """P5: a poll that finds work is a missed notification."""
    async with Reactor(database, registry=registry, poll_seconds=0.3) as reactor:
        await connection.execute("alter table reactor.jobs disable trigger user")
        for missed in (1, 2):
            await until(lambda: is_at_rest(reactor))
            await run_one(connection, until)
            await until(lambda missed=missed: reactor.counts.missed_wakes == missed)


class Proxy:
    """A way to PostgreSQL that can be made to swallow everything, as a firewall does that lost its tables."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self.port = 0
        self._black: set[int] = set()
        self._count = 0

    def swallow(self) -> None:
        """What is open now stays open, and silent. New connections work."""
        self._black = set(range(self._count + 1))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        number = self._count
        up_reader, up_writer = await asyncio.open_unix_connection(self._socket_path)
        await asyncio.gather(self._pump(number, reader, up_writer), self._pump(number, up_reader, writer))

    async def _pump(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if number not in self._black:
                    writer.write(data)
        writer.close()


async def test_a_listener_whose_network_swallows_everything_is_replaced(
    database: str, connection: Connection, registry: Registry, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is closed and nothing is heard: the watchdog notices. Until then the poll covers."""
    # Long enough to see that the poll covers until then.
    monkeypatch.setattr(Listener, "timings", Timings(watch_seconds=4.0, answer_seconds=0.5))
    parts = urlsplit(database)
    folder = parse_qs(parts.query).get("host", [""])[0]
    if not folder:
        pytest.skip("the server is not on a socket of this machine")
    socket_path = next(str(path) for path in Path(folder).iterdir() if path.is_socket())
    async with Proxy(socket_path).running() as proxy:
        listen_url = f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{proxy.port}{parts.path}"
        async with Reactor(database, registry=registry, listen_url=listen_url, poll_seconds=0.2) as reactor:
            reconnects = 0

            async def is_found_by_a_poll() -> bool:
                """Not on a machine so slow that the watchdog comes first."""
                nonlocal reconnects
                await until(lambda: is_at_rest(reactor))
                reconnects = reactor._claim_loop.summary()["reconnects"]
                proxy.swallow()
                await run_one(connection, until)
                return reactor.counts.missed_wakes > 0 or reactor._claim_loop.summary()["reconnects"] == reconnects

            await until(is_found_by_a_poll)
            assert reactor.counts.missed_wakes == 1
            heard = reactor.counts.wakes
            await until(lambda: reactor._claim_loop.summary()["reconnects"] > reconnects)
            await until(lambda: reactor.is_well)

            async def is_heard_again() -> bool:
                await run_one(connection, until)
                return reactor.counts.wakes > heard

            await until(is_heard_again)


async def test_jobs_run_again_after_a_restart_of_postgresql(folder: Path, registry: Registry, until: Until) -> None:
    server = await asyncio.to_thread(start_embedded, folder, version=18)
    url = server.url()
    await migrate(url)
    async with Reactor(url, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        async with connect(url, name="test") as connection:
            await run_one(connection, until)
        await asyncio.to_thread(server.close)
        await until(lambda: not reactor.is_well)
        server = await asyncio.to_thread(start_embedded, folder, version=18)
        async with connect(url, name="test") as connection:
            await run_one(connection, until)
        assert reactor.counts.failed == 0
    await asyncio.to_thread(server.close)


async def test_a_job_is_run_when_it_is_due(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    """P6: the notification of the insert sets the timer; no poll is needed, and nothing runs early."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        due = await connection.fetch(
            "insert into reactor.jobs (job_type, run_after) "
            "select 'work', clock_timestamp() + make_interval(secs => n * 0.3) from generate_series(1, 3) n "
            "returning id, run_after"
        )

        async def all_done() -> bool:
            return not await connection.fetchval("select exists (select from reactor.jobs where state <> 'completed')")

        await until(all_done)
        for record in due:
            began = await connection.fetchval("select started_at from reactor.jobs where id = $1", record["id"])
            assert began >= record["run_after"]


async def test_a_flood_of_forged_notifications_changes_nothing(
    database: str, connection: Connection, registry: Registry, until: Until
) -> None:
    """Any role can send them: they are hints, and no more."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        for payload in ("", "{", "null", "x" * 7999, '{"worker_id": "' + "0" * 36 + '"}'):
            for channel in ("reactor_jobs", "reactor_cancel"):
                await connection.execute("select pg_notify($1, $2) from generate_series(1, 200)", channel, payload)
        await run_one(connection, until)
        await until(lambda: reactor.is_well)
