"""A pooler in front of the tests' server, for machines without pgbouncer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

_PORT = 6432
_STARTUP, _READY, _KEY, _TERMINATE, _IDLE = b"", b"Z", b"K", b"X", b"I"


async def _message(reader: asyncio.StreamReader, kind_bytes: int = 1) -> tuple[bytes, bytes]:
    """A message's kind, and all of it. The first message of a client has no kind."""
    head = await reader.readexactly(kind_bytes + 4)
    length = int.from_bytes(head[kind_bytes:], "big")
    return head[:kind_bytes], head + await reader.readexactly(length - 4)


@dataclass
class Pooler:
    """As pgbouncer: a client gets the session that was used last, for one transaction (or, unless `is_transactional`,
    until it leaves). If it `rotates`, as under load, a client gets another session each time. What a session sends
    while no client has it is dropped, notifications included."""

    socket: str
    is_transactional: bool
    rotates: bool
    url: str
    _sessions: list["_Session"] = field(default_factory=list)
    _idle: list["_Session"] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        session: _Session | None = None
        try:
            _, startup = await _message(reader, kind_bytes=0)
            self._idle.append(await self._open(startup, writer))
            while True:
                kind, message = await _message(reader)
                if kind == _TERMINATE:
                    return
                if session is None or session.client is not writer:
                    session = self._idle.pop(0 if self.rotates else -1)
                    session.client = writer
                session.writer.write(message)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            if session and session.client is writer:
                session.writer.close()  # as pgbouncer does with a session whose client left in a transaction
            writer.close()

    async def _open(self, startup: bytes, client: asyncio.StreamWriter) -> "_Session":
        session = _Session(*await asyncio.open_unix_connection(self.socket))
        self._sessions.append(session)
        session.writer.write(startup)
        kind = _STARTUP
        while kind != _READY:
            kind, message = await _message(session.reader)
            client.write(message[:5] + bytes(8) if kind == _KEY else message)
        self._tasks.add(asyncio.create_task(self._relay(session)))
        return session

    async def _relay(self, session: "_Session") -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, message = await _message(session.reader)
                if client := session.client:
                    if self.is_transactional and kind == _READY and message[-1:] == _IDLE:
                        session.client = None
                        self._idle.append(session)
                    client.write(message)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions:  # also one that was being opened
            session.writer.close()


@dataclass
class _Session:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    client: asyncio.StreamWriter | None = None


@asynccontextmanager
async def pooler(
    database: str, folder: Path, *, is_transactional: bool = True, rotates: bool = False
) -> AsyncIterator[Pooler]:
    """Listens on a socket in `folder`."""
    parts = urlsplit(database)
    if "host" not in parse_qs(parts.query):
        pytest.skip("needs a server on a Unix socket of this machine: unset REACTOR_TEST_DATABASE_URL")
    [server] = parse_qs(parts.query)["host"]
    url = f"postgresql://{parts.netloc}{parts.path}?host={folder}&port={_PORT}"
    running = Pooler(f"{server}/.s.PGSQL.5432", is_transactional, rotates, url)
    listening = await asyncio.start_unix_server(running.serve, folder / f".s.PGSQL.{_PORT}")
    try:
        yield running
    finally:
        listening.close()
        await running.close()
