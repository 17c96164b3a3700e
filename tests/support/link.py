"""A TCP link to a server that is slow or fails on request, as networks do."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

_MOST_ON_THE_WAY = 1000
_NAME = re.compile(rb"application_name\0([^\0]*)\0")


class Link:
    """Forwards connections to a server of this machine. What it holds back is delivered later, as TCP does when packets
    arrive again, and never dropped from the middle of a stream."""

    def __init__(self, server: int | str) -> None:
        self.upstream = server
        """Where new connections go: a port, or the path of a socket."""
        self.round_trips: Counter[str] = Counter()
        """By the application_name of the connection: how often it sent something after an answer."""
        self.port = 0
        self.latency_seconds = 0.0
        """Of each direction."""
        self._flows = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._is_refusing = False
        self._connections: set[asyncio.Task[None]] = set()
        self.heal()

    def heal(self) -> None:
        self._is_refusing = False
        for flow in self._flows.values():
            flow.set()

    def hold(self, *directions: str) -> None:
        """Nothing arrives in these directions: `up` (to the server), `down`, or both. New connections hang too."""
        for direction in directions:
            self._flows[direction].clear()

    def refuse(self) -> None:
        """Breaks all connections, and refuses new ones."""
        self._is_refusing = True
        self.cut()

    def cut(self) -> None:
        for connection in self._connections:
            connection.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the end of the connection is all that its ends learn
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            return
        if isinstance(self.upstream, str):
            server_reader, server_writer = await asyncio.open_unix_connection(self.upstream)
        else:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        talk = _Talk(self.round_trips)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, server_writer, self._flows["up"], talk.sent))
                tasks.create_task(self._pump(server_reader, writer, self._flows["down"], talk.answered))
        except* OSError:
            pass
        finally:
            server_writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flow: asyncio.Event,
        note: Callable[[bytes], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_ON_THE_WAY)
        delivering = asyncio.create_task(self._deliver(on_the_way, writer, flow))
        try:
            content = b"-"
            while content and not delivering.done():
                content = await reader.read(65_536)
                note(content)
                await on_the_way.put((loop.time() + self.latency_seconds, content))
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(
        self, on_the_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter, flow: asyncio.Event
    ) -> None:
        """Until the end of the stream, which is empty content."""
        while True:
            due, content = await on_the_way.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await flow.wait()
            if not content:
                break
            writer.write(content)
            await writer.drain()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
        # The other direction of a connection that one end has closed carries nothing any more.
        raise ConnectionResetError


class _Talk:
    """Counts the round trips of one connection."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._name = ""
        self._is_answered = True

    def sent(self, content: bytes) -> None:
        if not self._name and (found := _NAME.search(content)):
            self._name = found[1].decode()
        self._counts[self._name] += self._is_answered and bool(content)
        self._is_answered = False

    def answered(self, content: bytes) -> None:
        self._is_answered = True


@asynccontextmanager
async def link_to(upstream: int | str, host: str = "127.0.0.1") -> AsyncIterator[Link]:
    """`host`: the address that it listens on."""
    link = Link(upstream)
    server = await asyncio.start_server(link.accept, host, 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.cut()
        await asyncio.sleep(0)


@asynccontextmanager
async def link_for(url: str) -> AsyncIterator[tuple[Link, str]]:
    """A link to the server of `url`, on this machine, and the URL of the same database through it."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    port = parts.port or int(query.get("port", 5432))
    folder = query.get("host", "")
    async with link_to(f"{folder}/.s.PGSQL.{port}" if folder.startswith("/") else port) as link:
        user = parts.netloc.rpartition("@")[0]
        yield link, f"postgresql://{user}@127.0.0.1:{link.port}{parts.path}?sslmode=disable"
