"""Health checks: what orchestrators are told when a part of a pod is not well, and when it is well again."""

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from reactor.database.connection import Connection, connect, with_database
from reactor.settings import read_settings
from reactor_http.app import create_app

Until = Callable[..., Awaitable[Any]]
StartPod = Callable[..., Awaitable[Any]]


class Probe:
    """Asks a pod how it is, as a kubelet would."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ready(self) -> tuple[int, dict[str, str]]:
        answer = await self._client.get("/health/ready")
        return answer.status_code, answer.json()

    async def is_ready(self) -> bool:
        return (await self.ready())[0] == 200

    async def live(self) -> int:
        return (await self._client.get("/health/live")).status_code

    async def metrics(self) -> str:
        return (await self._client.get("/metrics")).text


@asynccontextmanager
async def probing(pod: Any, until: Until) -> AsyncIterator[Probe]:
    [event] = await until(lambda: pod.events("serving health checks"))
    async with httpx.AsyncClient(base_url=event["address"], timeout=10) as client:
        yield Probe(client)


Act = Callable[[], Awaitable[None]]


@asynccontextmanager
async def a_listener_of_its_own(database: str, connection: Connection) -> AsyncIterator[tuple[str, Act, Act]]:
    """An address to listen at that is somebody else's, so that they alone can be shut out, and let in again."""
    role = f"reactor_test_{uuid4().hex[:8]}"

    async def cut_off() -> None:
        await connection.execute(f"alter role {role} nologin")
        await connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = $1", role)

    async def let_in() -> None:
        await connection.execute(f"alter role {role} login")

    await connection.execute(f"create role {role} login superuser password 'x'")
    try:
        yield re.sub("//([^@/?]*@)?", f"//{role}:x@", database, count=1), cut_off, let_in
    finally:
        await cut_off()
        await connection.execute(f"drop role {role}")


async def test_a_pod_is_ready_when_database_heartbeat_and_listener_are_well(start_pod: StartPod, until: Until) -> None:
    pod = await start_pod("--health-port", "0")
    async with probing(pod, until) as probe:

        async def when_ready() -> dict[str, str] | None:
            status, body = await probe.ready()
            return body if status == 200 else None

        body = await until(when_ready)
        assert body == {
            "status": "ok",
            "database": "ok",
            "schema": body["schema"],
            "heartbeat": "ok",
            "listener": "ok",
        }
        assert await probe.live() == 200


async def test_a_pod_without_its_listener_is_not_ready_until_it_hears_again(
    start_pod: StartPod, database: str, connection: Connection, until: Until
) -> None:
    """It goes on working, by polling: that is what the answer says, and no more."""
    async with a_listener_of_its_own(database, connection) as (listen_url, cut_off, let_in):
        pod = await start_pod("--health-port", "0", LISTEN_URL=listen_url, HEARTBEAT_SECONDS=1, LEASE_SECONDS=30)
        async with probing(pod, until) as probe:
            await until(probe.is_ready)
            await cut_off()

            async def says_so() -> bool:
                status, body = await probe.ready()
                return status == 503 and (body["listener"], body["heartbeat"]) == ("not well", "ok")

            await until(says_so)
            assert await probe.live() == 200
            assert "reactor_worker_listening{" in await probe.metrics()
            await let_in()
            await until(probe.is_ready)
        pod.end()


async def test_a_server_whose_feed_hears_nothing_is_not_ready(
    database: str, connection: Connection, until: Until
) -> None:
    async with a_listener_of_its_own(database, connection) as (listen_url, cut_off, let_in):
        app = create_app(database, listen_url=listen_url)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            probe = Probe(client)
            assert await probe.is_ready(), "nobody watches anything: there is no feed that could be missed"
            assert await app.state.edge.streams.open(
                "somebody", None, None, reset="", follows=False, is_welcome=lambda: True
            )
            await until(probe.is_ready)
            await cut_off()

            async def says_so() -> bool:
                status, body = await probe.ready()
                return (status, body["feed"]) == (503, "not well")

            await until(says_so)
            await let_in()
            await until(probe.is_ready)
            await app.state.edge.close()


async def test_a_pod_whose_heartbeat_does_not_get_through_is_not_ready(
    start_pod: StartPod, database: str, until: Until
) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=0.5, LEASE_SECONDS=4)
    async with probing(pod, until) as probe:
        await until(probe.is_ready)
        async with connect(database, name="test in the way") as other:
            transaction = other.transaction()
            await transaction.start()
            # All of it: with a lease lost, and another worker that gets through, it would be well again.
            await other.execute("lock table reactor.workers in share mode")

            async def says_so() -> bool:
                status, body = await probe.ready()
                return status == 503 and (body["database"], body["heartbeat"]) == ("ok", "not well")

            await until(says_so)
            assert await probe.live() == 200
            await transaction.rollback()
        await until(probe.is_ready)


async def test_a_pod_whose_database_is_away_is_not_ready_but_lives_and_counts(
    start_pod: StartPod, database: str, server: str, until: Until
) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=0.5, LEASE_SECONDS=4)
    name = urlsplit(database).path.lstrip("/")
    async with probing(pod, until) as probe, connect(with_database(server, "postgres"), name="test") as outside:
        await until(probe.is_ready)
        await outside.execute(f'alter database "{name}" allow_connections false')
        try:
            await outside.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)

            async def says_so() -> bool:
                status, body = await probe.ready()
                return status == 503 and body["database"] == "unreachable"

            await until(says_so)
            _, body = await probe.ready()
            assert name not in str(body), "the address is nobody's business"
            assert await probe.live() == 200
            assert "reactor_build_info" in await probe.metrics()
        finally:
            await outside.execute(f'alter database "{name}" allow_connections true')
        await until(probe.is_ready, within_seconds=30)


async def test_a_pods_metrics_are_its_own_and_need_no_heartbeat(
    start_pod: StartPod, connection: Connection, until: Until
) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=30)
    async with probing(pod, until) as probe:
        await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 3)")

        async def counted() -> bool:
            lines = (await probe.metrics()).splitlines()
            return any(
                line.startswith("reactor_worker_attempts_total{") and 'pod="pod-1"' in line and line.endswith(" 3.0")
                for line in lines
            )

        await until(counted)


async def test_a_pod_that_runs_once_needs_no_listener(
    start_pod: StartPod, connection: Connection, until: Until
) -> None:
    await connection.execute("""insert into reactor.jobs (job_type, payload) values ('await', '{"seconds": 30}')""")
    pod = await start_pod("--once", "--health-port", "0")
    async with probing(pod, until) as probe:
        await until(probe.is_ready)


async def test_without_the_flag_a_pod_answers_nobody(start_pod: StartPod) -> None:
    pod = await start_pod()
    assert not pod.events("serving health checks")
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=False).stdout
    assert f"pid={pod.process.pid}," not in listening


async def test_a_taken_port_is_told_with_the_flag_that_chose_it(database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "reactor", "worker", "--app", "pod_handlers", "--health-port", str(port)],
            env={"REACTOR_DATABASE_URL": database},
            cwd=Path(__file__).parents[1] / "support",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "--health-port" in done.stderr


async def test_every_check_is_named_in_the_answer(database: str) -> None:
    well = {"one": True, "other": True}
    checks = {"one": lambda: well["one"], "other": lambda: well["other"]}
    app = create_app(database, read_settings({}), checks=checks)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/health/ready")).json() | {"schema": ""} == {
            "status": "ok",
            "database": "ok",
            "schema": "",
            "one": "ok",
            "other": "ok",
            "feed": "ok",
        }
        well["one"] = False
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["one"], answer.json()["other"]) == (503, "not well", "ok")


async def test_many_probes_at_once_are_one_question(database: str, connection: Connection) -> None:
    app = create_app(database)
    before = await connection.fetchval("select sessions from pg_stat_database where datname = current_database()")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        answers = await asyncio.gather(*(client.get("/health/ready") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    await connection.execute("select pg_stat_clear_snapshot()")
    after = await connection.fetchval("select sessions from pg_stat_database where datname = current_database()")
    assert after - before <= 3


async def test_the_databases_address_is_not_told() -> None:
    app = create_app("postgresql://nobody:secret@127.0.0.1:1/hidden")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        answer = await client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json() == {"status": "unavailable", "database": "unreachable", "feed": "ok"}


async def test_a_database_that_keeps_us_waiting_for_a_lock_is_not_well(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reactor_http.server.health._DATABASE_SECONDS", 0.5)
    app = create_app(database)
    async with (
        connection.transaction(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        asyncio.timeout(15),
    ):
        await connection.execute("lock table reactor.alembic_version in access exclusive mode")
        answer = await client.get("/health/ready")
    assert (answer.status_code, answer.json()["database"]) == (503, "unreachable")
