"""Health checks: what they report when a part of a pod fails, and when it works again."""

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

from reactor.database.connection import Connection, connect
from reactor.database.migrate import migration_script
from reactor.database.url import with_database
from reactor.settings import read_settings
from tests.support.databases import empty_database
from tests.support.http_app import make_app, patient
from tests.support.pods import StartPod
from tests.support.pooler import pooler
from tests.support.until import until


class Probe:
    """Sends health checks to a pod, as a kubelet does."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ready(self) -> tuple[int, dict[str, str]]:
        response = await self._client.get("/health/ready")
        return response.status_code, response.json()

    async def is_ready(self) -> bool:
        return (await self.ready())[0] == 200

    async def live(self) -> int:
        return (await self._client.get("/health/live")).status_code

    async def metrics(self) -> str:
        return (await self._client.get("/metrics")).text


@asynccontextmanager
async def probing(pod: Any) -> AsyncIterator[Probe]:
    [event] = await until(lambda: pod.events("serving health checks"))
    async with httpx.AsyncClient(base_url=event["address"], timeout=10) as client:
        yield Probe(client)


Act = Callable[[], Awaitable[None]]


@asynccontextmanager
async def separate_listen_role(database: str, connection: Connection) -> AsyncIterator[tuple[str, Act, Act]]:
    """A listen URL with a role of its own, whose connections alone can be cut off and let in again."""
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


async def test_a_pod_is_ready_when_database_heartbeat_and_listener_work(start_pod: StartPod) -> None:
    pod = await start_pod("--health-port", "0")
    async with probing(pod) as probe:

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


async def test_a_pod_without_its_listener_is_not_ready_until_it_reconnects(
    start_pod: StartPod, database: str, connection: Connection
) -> None:
    """It keeps working by polling; only the listener is reported as failing."""
    async with separate_listen_role(database, connection) as (listen_url, cut_off, let_in):
        pod = await start_pod("--health-port", "0", LISTEN_URL=listen_url, HEARTBEAT_SECONDS=1, LEASE_SECONDS=30)
        async with probing(pod) as probe:
            await until(probe.is_ready)
            await cut_off()

            async def reports_failure() -> bool:
                status, body = await probe.ready()
                return status == 503 and (body["listener"], body["heartbeat"]) == ("not well", "ok")

            await until(reports_failure)
            assert await probe.live() == 200
            assert "reactor_worker_listening{" in await probe.metrics()
            await let_in()
            await until(probe.is_ready)
        pod.end()


async def test_a_pod_that_listens_through_a_transaction_pooler_is_not_ready(
    start_pod: StartPod, database: str, folder: Path
) -> None:
    async with pooler(database, folder) as pooled:
        pod = await start_pod("--health-port", "0", LISTEN_URL=pooled.url, HEARTBEAT_SECONDS=1, LEASE_SECONDS=30)
        async with probing(pod) as probe:
            await until(lambda: pod.events("notifications do not arrive"))
            status, body = await probe.ready()
            assert (status, body["database"], body["listener"]) == (503, "ok", "not well")
        pod.end()


async def test_a_read_only_database_is_not_ready(database: str) -> None:
    app = make_app(f"{database}&default_transaction_read_only=on")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        status, body = await Probe(client).ready()
        assert (status, "read-only" in body["database"]) == (503, True)
        await app.state.reactor.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_of_another_encoding_is_not_ready(server: str, encoding: str) -> None:
    """It may have been restored into one: `reactor migrate` creates no schema there."""
    async with empty_database(server, f"encoding '{encoding}' locale 'C' template template0") as url:
        async with connect(url, name="test") as connection:
            await connection.execute(migration_script().encode("latin-1", "replace").decode("latin-1"))
        app = make_app(url)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            status, body = await Probe(client).ready()
            assert (status, f"{encoding}; reactor needs UTF8" in body["database"]) == (503, True)
            await app.state.reactor.close()


async def test_a_server_whose_feed_can_not_listen_is_not_ready(database: str, connection: Connection) -> None:
    async with separate_listen_role(database, connection) as (listen_url, cut_off, let_in):
        app = make_app(database, listen_url=listen_url)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            probe = Probe(client)
            assert await probe.is_ready(), "without a stream there is no feed to fail"
            assert await app.state.reactor.streams.open(
                "caller", None, None, reset="", follow=False, is_authorized=lambda: True
            )
            await until(probe.is_ready)
            await cut_off()

            async def reports_failure() -> bool:
                status, body = await probe.ready()
                return (status, body["feed"]) == (503, "not well")

            await until(reports_failure)
            await let_in()
            await until(probe.is_ready)
            await app.state.reactor.close()


async def test_a_pod_whose_heartbeat_is_blocked_is_not_ready(start_pod: StartPod, database: str) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=0.5, LEASE_SECONDS=4)
    async with probing(pod) as probe:
        await until(probe.is_ready)
        async with connect(database, name="test blocker") as other:
            transaction = other.transaction()
            await transaction.start()
            # The whole table: after a lost lease another worker could register, and the pod would be ready again.
            await other.execute("lock table reactor.workers in share mode")

            async def reports_failure() -> bool:
                status, body = await probe.ready()
                return status == 503 and (body["database"], body["heartbeat"]) == ("ok", "not well")

            await until(reports_failure)
            assert await probe.live() == 200
            await transaction.rollback()
        await until(probe.is_ready)


async def test_a_pod_without_its_database_is_live_and_has_metrics_but_is_not_ready(
    start_pod: StartPod, database: str, server: str
) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=0.5, LEASE_SECONDS=4)
    name = urlsplit(database).path.lstrip("/")
    async with probing(pod) as probe, connect(with_database(server, "postgres"), name="test") as outside:
        await until(probe.is_ready)
        await outside.execute(f'alter database "{name}" allow_connections false')
        try:
            await outside.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)

            async def reports_failure() -> bool:
                status, body = await probe.ready()
                return status == 503 and body["database"] == "unreachable"

            await until(reports_failure)
            _, body = await probe.ready()
            assert name not in str(body), "the response must not contain the database's name"
            assert await probe.live() == 200
            assert "reactor_build_info" in await probe.metrics()
        finally:
            await outside.execute(f'alter database "{name}" allow_connections true')
        await until(probe.is_ready, within_seconds=30)


async def test_a_pods_metrics_do_not_wait_for_a_heartbeat(start_pod: StartPod, connection: Connection) -> None:
    pod = await start_pod("--health-port", "0", HEARTBEAT_SECONDS=30)
    async with probing(pod) as probe:
        await connection.execute("insert into reactor.jobs (job_type) select 'noop' from generate_series(1, 3)")

        async def counted() -> bool:
            lines = (await probe.metrics()).splitlines()
            return any(
                line.startswith("reactor_worker_attempts_total{") and 'pod="pod-1"' in line and line.endswith(" 3.0")
                for line in lines
            )

        await until(counted)


async def test_a_pod_with_once_is_ready_without_a_listener(start_pod: StartPod, connection: Connection) -> None:
    await connection.execute("""insert into reactor.jobs (job_type, payload) values ('await', '{"seconds": 30}')""")
    pod = await start_pod("--once", "--health-port", "0")
    async with probing(pod) as probe:
        await until(probe.is_ready)


async def test_a_pod_without_health_port_opens_no_port(start_pod: StartPod) -> None:
    pod = await start_pod()
    assert not pod.events("serving health checks")
    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=False).stdout
    assert f"pid={pod.process.pid}," not in listening


async def test_the_error_for_a_port_in_use_names_the_flag(database: str) -> None:
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


async def test_readiness_lists_every_check(database: str) -> None:
    passes = {"one": True, "other": True}
    checks = {"one": lambda: passes["one"], "other": lambda: passes["other"]}
    app = make_app(database, read_settings({}), checks=checks)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        assert (await client.get("/health/ready")).json() | {"schema": ""} == {
            "status": "ok",
            "database": "ok",
            "schema": "",
            "one": "ok",
            "other": "ok",
            "feed": "ok",
        }
        passes["one"] = False
        response = await client.get("/health/ready")
        assert (response.status_code, response.json()["one"], response.json()["other"]) == (503, "not well", "ok")


async def test_concurrent_probes_share_one_database_check(database: str, connection: Connection) -> None:
    app = make_app(database)
    before = await connection.fetchval("select sessions from pg_stat_database where datname = current_database()")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        responses = await asyncio.gather(*(client.get("/health/ready") for _ in range(50)))
    assert {response.status_code for response in responses} == {200}
    await connection.execute("select pg_stat_clear_snapshot()")
    after = await connection.fetchval("select sessions from pg_stat_database where datname = current_database()")
    assert after - before <= 3


async def test_readiness_does_not_reveal_the_databases_address() -> None:
    app = make_app("postgresql://nobody:secret@127.0.0.1:1/hidden")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        response = await client.get("/health/ready")
    assert response.status_code == 503
    assert response.json() == {"status": "unavailable", "database": "unreachable", "feed": "ok"}


async def test_a_database_that_waits_for_a_lock_is_not_ready(database: str, connection: Connection) -> None:
    app = make_app(database, timings=patient(health_seconds=0.5))
    async with (
        connection.transaction(),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        asyncio.timeout(15),
    ):
        await connection.execute("lock table reactor.alembic_version in access exclusive mode")
        response = await client.get("/health/ready")
    assert (response.status_code, response.json()["database"]) == (503, "unreachable")
