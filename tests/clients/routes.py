"""How a client reaches the database: a TCP address of the server, or of pgbouncer in transaction mode."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from reactor.embedded.account import server_account
from tests.support.until import until

ROUTES = ("direct", "pgbouncer")


@asynccontextmanager
async def direct(url: str) -> AsyncIterator[tuple[str, int]]:
    """Not every library can use the Unix socket on which an embedded server listens."""
    parts = urlsplit(url)
    if parts.hostname:
        yield parts.hostname, parts.port or 5432
    else:
        async with _forwarded(_socket(url)) as address:
            yield address


@asynccontextmanager
async def pgbouncer(url: str, folder: Path, user: str, password: str) -> AsyncIterator[tuple[str, int]]:
    program = find_pgbouncer()
    assert program, "the caller looks for it first"
    parts = urlsplit(url)
    host, port = (parts.hostname, parts.port or 5432) if parts.hostname else (_socket(url).parent, 5432)
    users, config, account = folder / "users.txt", folder / "pgbouncer.ini", server_account()
    users.write_text(f'"{user}" "{password}"\n')
    config.write_text(
        f"[databases]\n* = host={host} port={port}\n[pgbouncer]\n"
        f"unix_socket_dir={folder}\nlisten_port=6432\npool_mode=transaction\n"
        f"auth_type=scram-sha-256\nauth_file={users}\n"
        # Each transaction may get a session that another one used: here it always does.
        "server_reset_query_always=1\n"
        # Drivers of Java and Go send it, and the pooler's manual says to ignore it for them.
        "ignore_startup_parameters=extra_float_digits\n"
    )
    for path in (folder, users, config):
        account.take_ownership(path)  # it refuses root, as the server does
    log = folder / "pgbouncer.log"
    with log.open("w") as output:
        process = subprocess.Popen([program, config], stdout=output, stderr=output, **account.subprocess_options())
    try:
        path = folder / ".s.PGSQL.6432"
        await until(lambda: _answers(path))
        async with _forwarded(path) as address:
            yield address
    finally:
        process.terminate()
        process.wait()


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/opt/homebrew/bin")


def _socket(url: str) -> Path:
    [folder] = parse_qs(urlsplit(url).query)["host"]
    return Path(folder) / ".s.PGSQL.5432"


def _answers(path: Path) -> bool:
    """A socket's file exists a moment before the process listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@asynccontextmanager
async def _forwarded(path: Path) -> AsyncIterator[tuple[str, int]]:
    """A free port of 127.0.0.1 that leads to a Unix socket."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield host, port
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(ConnectionError):
        writer.close()
        await writer.wait_closed()
