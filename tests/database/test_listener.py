"""Lost notifications and lost listeners: jobs still run within the documented time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from reactor import Job, Registry
from reactor.database.connection import Connection, connect
from reactor.database.listener import Listener, Timings
from reactor.database.migrate import migrate
from reactor.embedded import start_embedded
from reactor.pod.in_process import Reactor
from reactor.worker.claim_loop import ClaimLoop
from tests.support.claim_loops import Running
from tests.support.jobs import insert
from tests.support.logs import Events
from tests.support.pooler import pooler
from tests.support.until import until


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.register("work")
    async def work(job: Job) -> None:
        pass

    return registry


async def run_one(connection: Connection) -> None:
    job_id = await insert(connection)

    async def is_completed() -> bool:
        return bool(await connection.fetchval("select state = 'completed' from reactor.jobs where id = $1", job_id))

    await until(is_completed)


def is_at_rest(loop: ClaimLoop) -> bool:
    """The rechecks after the last notification, and after the listener's start, are over."""
    return loop.is_listening and loop.is_at_rest


async def test_a_notification_starts_a_job_immediately(
    database: str, connection: Connection, registry: Registry
) -> None:
    """Polling is off: every job is found through its notification."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        for _ in range(20):
            await run_one(connection)
        await until(lambda: reactor.counts.wakes)
        assert reactor.counts.polls == 0
        assert reactor.counts.missed_wakes == 0


async def test_a_listener_whose_session_was_terminated_reconnects(
    connection: Connection, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also claims, since it may have missed notifications; long before its watchdog would notice."""
    monkeypatch.setattr(Listener, "timings", Timings(watch_seconds=60.0))
    async with running(poll_seconds=0) as loop:
        for _ in range(2):
            await until(lambda: is_at_rest(loop))
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name like 'reactor listen%'"
            )
            await run_one(connection)


async def test_without_triggers_the_poll_finds_and_counts_missed_jobs(
    connection: Connection, registry: Registry, running: Running
) -> None:
    """P5: a poll that finds work is a missed notification."""
    async with running(poll_seconds=0.3) as loop:
        await connection.execute("alter table reactor.jobs disable trigger user")
        for missed in (1, 2):
            await until(lambda: is_at_rest(loop))
            await run_one(connection)
            await until(lambda missed=missed: loop.counts.missed_wakes == missed)


class Proxy:
    """A proxy to PostgreSQL that can drop all packets, as a firewall does that lost its state."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self.port = 0
        self._black: set[int] = set()
        self._count = 0

    def drop_packets(self) -> None:
        """Drops the data of all open connections, which stay open. New connections work."""
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


async def test_a_listener_whose_network_drops_all_packets_is_replaced(
    database: str, connection: Connection, registry: Registry, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection is closed and no notification arrives until the watchdog notices. Polls find the jobs."""
    # Long enough for a poll to find a job before the watchdog notices.
    monkeypatch.setattr(Listener, "timings", Timings(watch_seconds=4.0, answer_seconds=0.5))
    parts = urlsplit(database)
    folder = parse_qs(parts.query).get("host", [""])[0]
    if not folder:
        pytest.skip("needs a server on a Unix socket of this machine: unset REACTOR_TEST_DATABASE_URL")
    socket_path = next(str(path) for path in Path(folder).iterdir() if path.is_socket())
    async with Proxy(socket_path).running() as proxy:
        listen_url = f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{proxy.port}{parts.path}"
        async with running(listen_url=listen_url, poll_seconds=0.2) as loop:
            reconnects = 0

            async def is_found_by_a_poll() -> bool:
                """Not on a machine so slow that the watchdog comes first."""
                nonlocal reconnects
                await until(lambda: is_at_rest(loop))
                reconnects = loop.summary()["reconnects"]
                proxy.drop_packets()
                await run_one(connection)
                return loop.counts.missed_wakes > 0 or loop.summary()["reconnects"] == reconnects

            await until(is_found_by_a_poll)
            assert loop.counts.missed_wakes == 1
            wakes = loop.counts.wakes
            await until(lambda: loop.summary()["reconnects"] > reconnects)
            await until(lambda: loop.is_listening)

            async def is_heard_again() -> bool:
                await run_one(connection)
                return loop.counts.wakes > wakes

            await until(is_heard_again)


async def test_jobs_run_again_after_a_restart_of_postgresql(folder: Path, registry: Registry) -> None:
    server = await asyncio.to_thread(start_embedded, folder, version=18)
    url = server.url()
    await migrate(url)
    async with Reactor(url, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        async with connect(url, name="test") as connection:
            await run_one(connection)
        await asyncio.to_thread(server.close)
        await until(lambda: not reactor.is_well)
        server = await asyncio.to_thread(start_embedded, folder, version=18)
        async with connect(url, name="test") as connection:
            await run_one(connection)
        assert reactor.counts.failed == 0
    await asyncio.to_thread(server.close)


async def test_a_job_is_run_when_it_is_due(database: str, connection: Connection, registry: Registry) -> None:
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
            started_at = await connection.fetchval("select started_at from reactor.jobs where id = $1", record["id"])
            assert started_at >= record["run_after"]


async def test_a_flood_of_forged_notifications_changes_nothing(
    database: str, connection: Connection, registry: Registry
) -> None:
    """Any role can send them: they only cause another claim."""
    async with Reactor(database, registry=registry, poll_seconds=0) as reactor:
        await until(lambda: reactor.is_well)
        for payload in ("", "{", "null", "x" * 7999, '{"worker_id": "' + "0" * 36 + '"}'):
            for channel in ("reactor_jobs", "reactor_cancel"):
                await connection.execute("select pg_notify($1, $2) from generate_series(1, 200)", channel, payload)
        await run_one(connection)
        await until(lambda: reactor.is_well)


async def test_a_listener_behind_a_transaction_pooler_says_that_it_is_deaf(
    database: str, connection: Connection, folder: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LISTEN succeeds there, and a notification of its own session would arrive by accident."""
    monkeypatch.setattr(Listener, "timings", Timings(watch_seconds=0.01, answer_seconds=0.3))
    async with pooler(database, folder) as pooled:
        listener = Listener(pooled.url, "reactor listen", {"reactor_jobs": lambda _: None}, lambda: None)
        listening = asyncio.create_task(listener.run())
        await until(lambda: listener.reconnects > 2)
        assert not listener.is_listening
        listening.cancel()
    [said] = [entry for entry in events if entry["event"] == "notifications do not arrive"]
    assert "REACTOR_LISTEN_URL" in said["remedy"]


async def test_a_listener_behind_a_session_pooler_hears(database: str, connection: Connection, folder: Path) -> None:
    heard: list[str] = []
    async with pooler(database, folder, is_transactional=False) as pooled:
        listener = Listener(pooled.url, "reactor listen", {"reactor_jobs": heard.append}, lambda: None)
        listening = asyncio.create_task(listener.run())
        await until(lambda: listener.is_listening)
        await connection.execute("notify reactor_jobs, 'x'")
        await until(lambda: heard == ["x"])
        listening.cancel()


async def test_a_deaf_pod_goes_on_after_each_end(
    database: str, connection: Connection, registry: Registry, folder: Path
) -> None:
    """With its scopes and its pipelines: one job per poll would take forever, since there is none."""
    last = [await insert(connection, scope="s") for _ in range(3)][-1]
    await insert(connection, after=[last])

    async def all_done() -> bool:
        return not await connection.fetchval("select exists (select from reactor.jobs where state <> 'completed')")

    async with (
        pooler(database, folder) as pooled,
        Reactor(database, listen_url=pooled.url, registry=registry, poll_seconds=0) as reactor,
    ):
        await until(all_done)
        assert not reactor.is_well
