"""The server: no client can block it, exhaust it or delay its shutdown, and its log contains no secret."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from reactor_http.api.access import Permission
from reactor_http.auth.tokens import make_token
from tests.support.until import until


class Server:
    def __init__(self, folder: Path, settings: dict[str, str], limits: dict[str, float]) -> None:
        self._log = folder / f"log-{time.monotonic_ns()}"
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REACTOR_")}
        inside = {"REACTOR_PORT": "0"} | ({"TEST_LIMITS": json.dumps(limits)} if limits else {})
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).parents[1] / "support" / "serve_paths.py")],
                env=outside | inside | settings,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.log
        self.port = int(self.address.rsplit(":", 1)[1])
        # Tests compare the number of open files. The first request opens the last permanent one; reading to the end
        # ensures that the server has closed the request's own.
        with self.connect() as connection:
            connection.sendall(head("/health/live", "Connection: close"))
            assert read_all(connection).startswith(b"HTTP/1.1 200 ")

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stops the process, so that everything sent in the block has arrived when the server reads."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        yield
        self.process.send_signal(signal.SIGCONT)

    def connect(self, *, small: bool = False) -> socket.socket:
        connection = socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(self.address + path, timeout=20, **more)

    def mint(self, token: str) -> str:
        """A stream token."""
        headers, wanted = {"Authorization": f"Bearer {token}"}, {"pipeline_id": None}
        minted = httpx.post(f"{self.address}/v1/stream-tokens", json=wanted, headers=headers, timeout=20)
        return str(minted.json()["token"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server; settings without their prefix: start(TOKENS=…), limits by their names: start(head_seconds=1)."""
    servers: list[Server] = []

    def started(**given: Any) -> Server:
        settings = {f"REACTOR_{name}": str(value) for name, value in given.items() if name.isupper()}
        limits = {name: value for name, value in given.items() if name.islower()}
        servers.append(Server(tmp_path, settings, limits))
        return servers[-1]

    yield started
    for server in servers:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server shared by the tests that only check their own connection."""
    server = Server(tmp_path_factory.mktemp("hasty"), {}, {"head_seconds": 0.5})
    yield server
    server.process.kill()
    server.process.communicate()


Start = Callable[..., Server]


def head(path: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *lines, "", ""]).encode()


def seconds_of_trickling(connection: socket.socket) -> float:
    """Sends a byte at a time for up to 30 s, and returns how long the server allowed it."""
    began = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - began < 30:
            connection.sendall(b"x")
            time.sleep(0.05)  # slow on purpose: the server counts the time, not the bytes
    return time.monotonic() - began


def read_all(connection: socket.socket) -> bytes:
    """All data until the server closes the connection."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Connection limits


async def test_a_thousand_half_open_connections_block_no_request_and_are_closed(start: Start) -> None:
    server = start(head_seconds=600)
    before = server.open_files
    with many_files(), ExitStack() as connections:
        a_thousand(server, connections)
        await until(lambda: server.open_files >= before + 1000)
        assert server.get("/health/live").status_code == 200
        assert server.open_files >= before + 1000, "the response came while all of them were open"

    server = start(head_seconds=1)
    before = server.open_files
    with many_files(), ExitStack() as connections:
        began = time.monotonic()
        for number, connection in enumerate(a_thousand(server, connections)):
            assert read_all(connection)[:13] in (b"", b"HTTP/1.1 408 ")
            assert number or time.monotonic() - began > 1, "the limit is one second"
        await until(lambda: server.open_files <= before)


def a_thousand(server: Server, connections: ExitStack) -> list[socket.socket]:
    opened = []
    for number in range(1000):
        opened.append(connections.enter_context(server.connect()))
        if number % 2:
            opened[-1].sendall(b"GET /health/live HTTP/1.1\r\nHo")
    return opened


def test_an_incomplete_head_is_a_408(hasty: Server) -> None:
    with hasty.suspended():
        connection = hasty.connect()
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
    with connection:
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")


def test_a_head_that_trickles_times_out(hasty: Server) -> None:
    with hasty.connect() as connection:
        began = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            while time.monotonic() - began < 30:
                connection.sendall(b"X-A: b\r\n")
                connection.settimeout(0.1)
                with suppress(TimeoutError):
                    if connection.recv(1000):
                        break
        assert time.monotonic() - began < 20


def test_a_silent_connection_is_closed_without_a_response(hasty: Server) -> None:
    with hasty.connect() as connection:
        assert read_all(connection) == b""


def test_a_second_request_on_a_connection_has_the_same_time_limit(hasty: Server) -> None:
    with hasty.suspended():
        connection = hasty.connect()
        connection.sendall(head("/health/live"))
    with connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET / HT")
        assert b"HTTP/1.1 408 " in read_all(connection)


def test_connections_are_kept_alive_between_requests(hasty: Server) -> None:
    with hasty.suspended():
        connection = hasty.connect()
        connection.sendall(head("/health/live"))
    with connection:
        for number in range(3):
            if number:
                time.sleep(1.1)  # the server has checked its connections
                connection.sendall(head("/health/live"))
            response = b""
            while not response.endswith(b"}"):
                response += (part := connection.recv(65536))
                assert part, "the connection was closed"
            assert response.startswith(b"HTTP/1.1 200 ")


def test_a_body_that_trickles_times_out(start: Start) -> None:
    server = start(body_seconds=1)
    with server.connect() as connection:
        connection.sendall(head("/read", "Content-Length: 1000000", method="POST"))
        assert seconds_of_trickling(connection) < 20


def test_a_body_that_trickles_after_the_response_times_out(hasty: Server) -> None:
    """Uvicorn's own timer restarts with every byte."""
    with hasty.suspended():
        connection = hasty.connect()
        connection.sendall(head("/nowhere", "Content-Length: 1000000", method="POST"))
    with connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 405 ")
        assert seconds_of_trickling(connection) < 20


def test_a_slow_but_complete_body_is_accepted(start: Start) -> None:
    server = start()
    with server.connect() as connection:
        connection.sendall(head("/read", "Content-Length: 5", "Connection: close", method="POST"))
        for _ in range(5):
            time.sleep(0.1)  # slow on purpose
            connection.sendall(b"x")
        assert read_all(connection).endswith(b"\r\n\r\n5")


@pytest.mark.parametrize("path", ["/flood", "/big?bytes=20000000"])
async def test_a_client_that_does_not_read_is_disconnected(start: Start, path: str) -> None:
    server = start(stall_seconds=1)
    before = server.open_files
    with server.connect(small=True) as connection:
        connection.sendall(head(path))
        assert connection.recv(1)
        await until(lambda: server.open_files <= before)


async def test_closing_does_not_wait_for_a_client_that_does_not_read(start: Start) -> None:
    server = start(stall_seconds=600, close_seconds=1)
    before = server.open_files
    with server.connect(small=True) as connection:
        connection.sendall(head("/big?bytes=20000000", "Connection: close"))
        assert connection.recv(1)
        await until(lambda: server.open_files <= before)


async def test_an_endpoint_can_abort_its_connection(start: Start) -> None:
    server = start()
    before = server.open_files
    with server.connect() as connection:
        connection.sendall(head("/abort"))
        assert read_all(connection) == b""
        await until(lambda: server.open_files <= before)


async def test_connections_over_the_limit_are_refused_and_the_others_served(start: Start) -> None:
    server = start(connections=20, head_seconds=600, crowded_head_seconds=1)
    with ExitStack() as connections:
        with server.suspended():
            *_, refused = [connections.enter_context(server.connect()) for _ in range(21)]
        assert read_all(refused).startswith(b"HTTP/1.1 503 ")
        # Silent connections are closed soon.
        await until(lambda: _is_live(server))


def _is_live(server: Server) -> bool:
    with suppress(httpx.HTTPError):
        return server.get("/health/live").status_code == 200
    return False


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \x00\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_invalid_http_is_rejected_and_the_connection_closed(hasty: Server, garbage: bytes) -> None:
    with hasty.connect() as connection:
        with suppress(ConnectionError):
            connection.sendall(garbage)
        response = read_all(connection)
    assert not response or response.split()[1][:1] == b"4", response[:100]
    await until(lambda: _is_live(hasty))
    assert "Traceback" not in hasty.log
    assert "exc_info" not in hasty.log


# Shutdown


def test_a_client_that_does_not_read_does_not_delay_the_shutdown(start: Start) -> None:
    server = start()
    with server.connect(small=True) as connection:
        connection.sendall(head("/flood"))
        assert connection.recv(100)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert "Traceback" not in server.log


def test_clients_in_any_state_do_not_delay_the_shutdown(start: Start) -> None:
    server = start(close_seconds=600, stall_seconds=600)
    with ExitStack() as connections:
        for sent in (
            b"",
            b"GET / HT",
            head("/health/live"),
            head("/health/live") * 3 + b"GET",
            head("/nowhere", "Content-Length: 100", method="POST") + b"x",
            head("/read", "Content-Length: 100", method="POST") + b"x",
            head("/read", "Expect: 100-continue", "Content-Length: 100", method="POST"),
            head("/big?bytes=20000000"),
            head("/big?bytes=20000000", "Connection: close"),
            b"nonsense\r\n\r\n",
        ):
            connection = connections.enter_context(server.connect(small=True))
            connection.sendall(sent)
            # The server has processed what was sent before.
            assert server.get("/health/live").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    assert "Traceback" not in server.log
    assert '"exception"' not in server.log


# Callers and secrets


def test_forwarded_addresses_are_trusted_only_from_configured_proxies(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, entry = make_token("vera", [Permission.VIEW])
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "10.1.2.3"}
    assert start(TOKENS=entry).get("/who", headers=headers).json() == ["vera", "127.0.0.1"]
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "127.0.0.1")
    assert start(TOKENS=entry).get("/who", headers=headers).json() == ["vera", "10.1.2.3"]


def test_servers_with_the_same_secret_accept_each_others_stream_tokens(start: Start) -> None:
    token, entry = make_token("vera", [Permission.VIEW])
    one, other = (start(TOKENS=entry, SECRET="s" * 32) for _ in range(2))
    minted = one.mint(token)
    # An accepted token reaches the handler, which fails with a 500.
    assert other.get("/explode-in-a-stream", params={"token": minted}).status_code == 500
    assert other.get("/explode-in-a-stream", params={"token": minted + "x"}).status_code == 401


async def test_the_log_contains_no_secret_after_any_error(start: Start, tmp_path: Path) -> None:
    token, entry = make_token("vera", [Permission.VIEW])
    file = tmp_path / "tokens"
    file.write_text(entry)
    secret = "hush" * 8
    server = start(TOKENS_FILE=file, SECRET=secret)
    bearer = {"Authorization": f"Bearer {token}"}
    minted = server.mint(token)
    assert server.get("/explode", headers=bearer).status_code == 500
    assert server.get(f"/explode?token={token}", headers=bearer).status_code == 500
    assert server.get("/explode-in-a-stream", params={"token": minted}).status_code == 500
    assert server.get("/explode-in-a-stream", params={"token": token}).status_code == 401
    assert server.get("/explode", headers={"Authorization": token}).status_code == 401
    assert server.get(f"/{token}?token={token}").status_code == 404
    for broken in (f"GET /{token} HTTP/9\r\nAuthorization: Bearer {token}\r\n\r\n", f"{token}\r\n\r\n"):
        with server.connect() as connection:
            connection.sendall(broken.encode())
            read_all(connection)
    file.write_text(f"vera:view:{token}\n{token}\n")
    await until(lambda: server.get("/explode", headers=bearer).content and "tokens file is invalid" in server.log)
    assert "it exploded" in server.log
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(30)
    for hidden in (token, minted, secret, entry.rsplit(":")[-1]):
        for length in (len(hidden), 16):
            assert hidden[:length] not in server.log
