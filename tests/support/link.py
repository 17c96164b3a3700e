"""A TCP link to a server that fails on request, as networks do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Link:
    """Forwards connections to `port` of this machine. What it holds back is delivered later, as TCP does when packets
    arrive again, and never dropped from the middle of a stream."""

    def __init__(self, port: int) -> None:
        self.upstream = port
        """Where new connections go."""
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
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, server_writer, self._flows["up"]))
                tasks.create_task(self._pump(server_reader, writer, self._flows["down"]))
        except* OSError:
            pass
        finally:
            server_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
        while content := await reader.read(65_536):
            if self.latency_seconds:
                await asyncio.sleep(self.latency_seconds)
            await flow.wait()
            writer.write(content)
            await writer.drain()
        await flow.wait()
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
        # The other direction of a connection that one end has closed carries nothing any more.
        raise ConnectionResetError


@asynccontextmanager
async def link_to(port: int, host: str = "127.0.0.1") -> AsyncIterator[Link]:
    """`host`: the address that it listens on."""
    link = Link(port)
    server = await asyncio.start_server(link.accept, host, 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.cut()
        await asyncio.sleep(0)
