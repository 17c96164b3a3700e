"""A pooler in transaction mode, for machines without pgbouncer: each transaction gets another session."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

_SSL_REQUEST, _CANCEL_REQUEST = 80877103, 80877102
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TransactionPooler:
    """The server must trust its socket."""

    def __init__(self, url: str, sessions: int) -> None:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"
        self._user, self._database = parts.username or "postgres", parts.path.lstrip("/")
        self._sessions = sessions
        self._idle: asyncio.Queue[Stream] = asyncio.Queue()
        self._greeting = b""
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        for _ in range(self._sessions):
            reader, writer = await asyncio.open_unix_connection(self._socket)
            startup = b"".join(text.encode() + b"\0" for text in ("user", self._user, "database", self._database, ""))
            writer.write(struct.pack("!ii", len(startup) + 8, 196608) + startup)
            self._greeting = b""
            while (message := await _read(reader))[:1] != b"Z":
                if message[:1] == b"S":
                    self._greeting += message
            self._writers.append(writer)
            self._idle.put_nowait((reader, writer))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size, code = struct.unpack("!ii", await reader.readexactly(8))
            await reader.readexactly(size - 8)
            if code == _CANCEL_REQUEST:
                return
            if code != _SSL_REQUEST:
                break
            writer.write(b"N")
        no_process = b"K" + struct.pack("!iii", 12, 1, 1)
        writer.write(b"R" + struct.pack("!ii", 8, 0) + self._greeting + no_process + b"Z" + struct.pack("!i", 5) + b"I")
        answering: asyncio.Task[None] | None = None
        server: asyncio.StreamWriter | None = None
        while (message := await _read(reader))[:1] != b"X":
            if answering is None or answering.done():
                answers, server = await self._idle.get()
                answering = asyncio.create_task(self._answer(answers, server, writer))
            assert server
            server.write(message)

    async def _answer(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        """Until the transaction ends."""
        while True:
            message = await _read(reader)
            is_last = message[:1] == b"Z" and message[5:] == b"I"
            if is_last:
                self._idle.put_nowait((reader, server))
            client.write(message)
            if is_last:
                return


async def _read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


@asynccontextmanager
async def transaction_pooler(url: str, folder: str, sessions: int = 3) -> AsyncIterator[str]:
    """Yields the address of the pooler, a socket in `folder`."""
    pooler = TransactionPooler(url, sessions)
    await pooler.open()
    server = await asyncio.start_unix_server(pooler.serve, f"{folder}/.s.PGSQL.6432")
    parts = urlsplit(url)
    try:
        yield f"{parts.scheme}://{parts.netloc}{parts.path}?host={folder}&port=6432"
    finally:
        server.close()
        pooler.close()
