"""Fixtures: a server per session, a migrated database of its own per test."""

import asyncio
import importlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from starlette.applications import Starlette

from reactor.database.connection import Connection, connect
from reactor.database.migrate import migrate
from reactor.embedded import installed_versions, start_embedded
from reactor.embedded.account import server_account
from reactor.feed.poller import Poller, Timings
from reactor.handlers.registry import Registry
from reactor.lifecycle.lease import Worker, register_worker
from reactor.log import get_logger
from reactor.testing import Databases, fast_temporary_folder, server_for_tests
from tests.support.claim_loops import Running, run
from tests.support.http_app import make_app
from tests.support.jobs import Row
from tests.support.logs import Events, whole_lines
from tests.support.package import build_wheel
from tests.support.pods import Marks, Pod, StartPod
from tests.support.servers import Server, StartServer
from tests.support.until import until

# Fixtures that tests share: the tests of one of them run one after the other, in their order.
_SHARED = {"browser", "address", "hasty", "wheel"}
# A supervisor and its worker process import everything, one after the other, while other tests do the same.
_START_SECONDS = 60


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if order := os.environ.get("REACTOR_TEST_ORDER"):
        random.Random(order).shuffle(items)
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "server" in names:
            item.add_marker("database")
        for name in _SHARED.intersection(names):
            item.add_marker(pytest.mark.xdist_group(name))
        if "start_pod" in names or "start_server" in names:
            item.add_marker("pods")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A second try that passes must not hide why there was one."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed at its first try: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("REACTOR_") and not name.startswith("REACTOR_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _long_stale_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams report a database that does not respond within seconds. On a busy machine it is only slow."""
    monkeypatch.setattr(Poller, "timings", Timings(stale_seconds=60.0))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server, as a superuser (CONTRIBUTING.md says how it is chosen)."""
    version = int(os.environ.get("REACTOR_TEST_PG") or 0) or None
    if version and version not in installed_versions():
        pytest.exit(f"PG={version}: no such PostgreSQL here, only {installed_versions()}", returncode=2)
    with server_for_tests(os.environ.get("REACTOR_TEST_DATABASE_URL"), version) as url:
        yield url


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that users install."""
    return build_wheel(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def databases(server: str) -> Iterator[Databases]:
    # On a busy machine a closed session takes a while to end.
    databases = Databases(server, disconnect_seconds=10.0)
    asyncio.run(databases.prepare())
    yield databases
    asyncio.run(databases.remove())


@pytest.fixture
async def database(databases: Databases) -> AsyncIterator[str]:
    """The address of a migrated database that only this test uses."""
    async with databases.clone() as url:
        yield url


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    async with connect(database, name="test") as connection:
        yield connection


@pytest.fixture
async def worker(connection: Connection) -> Worker:
    """A live worker that has a handler for `work`."""
    worker = Worker("pod-1", {"work": None}, capacity=10)
    await register_worker(connection, worker, 600)
    return worker


@pytest.fixture
def row(connection: Connection) -> "Row":
    """A job's row, as a dict, by its id."""

    async def fetch(job_id: int) -> dict[str, Any]:
        found = await connection.fetchrow("select * from reactor.jobs where id = $1", job_id)
        assert found, f"there is no job {job_id}"
        return dict(found)

    return fetch


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path that the account of root's embedded server may enter too."""
    folder = Path(tempfile.mkdtemp(prefix="reactor-test-", dir=fast_temporary_folder()))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def pooled(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Two addresses of a migrated database: through pgbouncer in transaction mode, and past it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/opt/homebrew/bin")
    if not program:
        pytest.skip("there is no pgbouncer: apt-get install pgbouncer (or brew)")
    with start_embedded(folder, version=18, options={"fsync": "off"}) as server:
        await migrate(server.url())
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={server.socket_folder} user=postgres\n[pgbouncer]\n"
            f"unix_socket_dir={server.socket_folder}\nlisten_port=6432\nauth_type=any\npool_mode=transaction\n"
        )
        account = server_account()  # it refuses root, as the server does
        account.take_ownership(config)
        process = subprocess.Popen([program, config], stderr=subprocess.DEVNULL, **account.subprocess_options())
        try:
            await until(lambda: _answers(server.socket_folder / ".s.PGSQL.6432"))
            yield f"{server.url()}&port=6432", server.url()
        finally:
            process.terminate()
            process.wait()


def _answers(path: Path) -> bool:
    """A socket's file exists a moment before the process listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
async def start_pod(database: str, tmp_path: Path) -> AsyncIterator[StartPod]:
    """Starts a pod with these arguments; settings without their prefix: start_pod("--once", LEASE_SECONDS=4)."""
    pods: list[Pod] = []

    async def start(
        *arguments: str, url: str = database, ready: bool = True, prefix: Sequence[str] = (), **settings: object
    ) -> Pod:
        named = {f"REACTOR_{name}": str(value) for name, value in settings.items()}
        pod = Pod(url, tmp_path, len(pods) + 1, arguments, named, prefix)
        pods.append(pod)
        if ready:
            await until(lambda: pod.events("worker started"), _START_SECONDS)
        return pod

    yield start
    for pod in pods:
        pod.end()


@pytest.fixture
async def start_server(database: str, tmp_path: Path) -> AsyncIterator[StartServer]:
    """Starts an HTTP server with these arguments; settings without their prefix: start_server(MAX_STREAMS=2)."""
    servers: list[Server] = []

    async def start(*arguments: str, url: str = database, **settings: object) -> Server:
        named = {f"REACTOR_{name}": str(value) for name, value in settings.items()}
        chosen = arguments if "--port" in arguments else ("--port", "0", *arguments)
        server = Server(url, tmp_path, len(servers) + 1, chosen, named)
        servers.append(server)
        await until(server.find_address, _START_SECONDS)
        return server

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    """The marks of handlers with this word: job, attempt, pid, time."""

    def read(word: str) -> list[tuple[int, int, int, float]]:
        file = tmp_path / "marks"
        lines = [line.split() for line in whole_lines(file)] if file.exists() else []
        return [(int(job), int(attempt), int(pid), float(at)) for w, job, attempt, pid, at in lines if w == word]

    return read


@pytest.fixture
def registry() -> Registry:
    """A registry that only this test uses."""
    return Registry()


@pytest.fixture
def running(database: str, registry: Registry) -> Running:
    """A claim loop that runs the handlers of the test until the block is left: `async with running() as loop`."""
    return partial(run, database, registry)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    """The log entries of the engine and its handlers during the test."""
    for module in map(
        importlib.import_module,
        (
            "reactor.database.listener",
            "reactor.handlers.attempt",
            "reactor.worker.slots",
            "reactor.worker.claim_loop",
            "reactor.worker.unhandled_types",
        ),
    ):
        # A new logger: one that another test used keeps its configuration.
        monkeypatch.setattr(module, "log", get_logger(module.__name__))
    with structlog.testing.capture_logs() as events:
        yield events


@pytest.fixture
async def app(database: str) -> AsyncIterator[Starlette]:
    """The HTTP application on this test's database."""
    app = make_app(database)
    yield app
    await app.state.reactor.close()


@pytest.fixture
async def api(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, without a server between them."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
