"""A reverse proxy that fails on request, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Request:
    path: str
    """With its query."""
    headers: dict[str, str]
    status: int = 0
    """0: not answered yet."""

    @property
    def is_event_source(self) -> bool:
        return self.headers.get("accept") == "text/event-stream"


@dataclass
class Proxy:
    upstream: str
    """host:port"""
    address: str = ""
    requests: list[Request] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    """HTML by path, which the proxy serves itself."""
    cut_at: bytes = b""
    """Breaks the connection of the next response that has these bytes, before them."""
    _to_fail: list[Callable[[Request], bool]] = field(default_factory=list)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def event_sources(self) -> list[Request]:
        return [request for request in self.requests if request.is_event_source]

    def fail_next(self, matches: Callable[[Request], bool]) -> None:
        """Answers the next such request with 502, as for a server that is away."""
        self._to_fail.append(matches)

    def cut(self) -> None:
        """Breaks the open connections, as a network does."""
        for writer in self._open:
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._respond(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            await _close(writer)

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request = _parse(head)
        body = await reader.readexactly(int(request.headers.get("content-length", 0)))
        self.requests.append(request)
        if request.path in self.pages:
            request.status = 200
            _write(writer, "200 OK", "text/html; charset=utf-8", self.pages[request.path])
        elif self._is_to_fail(request) or not await self._forward(request, head, body, reader, writer):
            request.status = 502
            _write(writer, "502 Bad Gateway", "text/html", "<h1>Bad Gateway</h1>")

    def _is_to_fail(self, request: Request) -> bool:
        for matches in self._to_fail:
            if matches(request):
                self._to_fail.remove(matches)
                return True
        return False

    async def _forward(
        self, request: Request, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """False: the server can't be reached."""
        host, _, port = self.upstream.partition(":")
        try:
            response, server = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        closing = asyncio.create_task(reader.read())
        self._open.add(writer)
        try:
            first, _, rest = head.partition(b"\r\n")
            kept = [line for line in rest.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            server.write(b"\r\n".join([first, b"connection: close", *kept]) + body)
            copying = asyncio.create_task(self._copy(request, response, writer))
            await asyncio.wait({closing, copying}, return_when=asyncio.FIRST_COMPLETED)
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)
        finally:
            self._open.discard(writer)
            closing.cancel()
            await _close(server)
        return True

    async def _copy(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65_536):
            request.status = request.status or int(content.split(b" ", 2)[1])
            before, found, _ = content.partition(self.cut_at or content + b"?")
            writer.write(before)
            await writer.drain()
            if found:
                self.cut_at = b""
                return


@asynccontextmanager
async def proxy_for(upstream: str) -> AsyncIterator[Proxy]:
    """`upstream`: host:port"""
    proxy = Proxy(upstream)
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await proxy.handle(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def _parse(head: bytes) -> Request:
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return Request(first.split(" ")[1], headers)


def _write(writer: asyncio.StreamWriter, status: str, kind: str, body: str) -> None:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + content)
