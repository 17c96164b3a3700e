"""Hears the database's notifications, on a connection of its own that is watched and replaced when it dies."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import asyncpg

from reactor.database.connection import open_connection
from reactor.database.reconnecting import CONNECTION_LOST, SERVER_STOPS
from reactor.errors import ReactorError
from reactor.log import get_logger

log = get_logger(__name__)

_WATCH_SECONDS = 10.0
_ANSWER_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_LONGEST_PAYLOAD = 1000


class Listener:
    """Never in a transaction and never from a pool: both would lose notifications without a word."""

    def __init__(
        self, url: str, name: str, channels: Mapping[str, Callable[[str], None]], on_connected: Callable[[], None]
    ) -> None:
        """`channels`: what to call with a notification's payload, which anybody may have sent.

        `on_connected`: called each time that listening has begun; what happened before was not heard.
        """
        self._url = url
        self._name = name
        self._channels = channels
        self._on_connected = on_connected
        self.is_listening = False
        self.heard_at: float | None = None
        """When the last notification came, in seconds since 1970."""
        self.reconnects = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            await self._listen_again_and_again()
        finally:
            self.is_listening = False

    async def _listen_again_and_again(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._listen()
            except (ReactorError, asyncpg.PostgresError, *CONNECTION_LOST, *SERVER_STOPS) as error:
                if self.is_listening:
                    pause = _FIRST_PAUSE_SECONDS
                    log.warning("listener lost", error=str(error) or type(error).__name__)
            self.is_listening = False
            self.reconnects += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    async def _listen(self) -> None:
        connection = await open_connection(self._url, name=self._name, prepares=False)
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._hear)
            self.is_listening = True
            self._on_connected()
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            while not ended.is_set():
                # A network that swallows everything looks like silence: asyncpg would never notice.
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await connection.fetchval("select 1")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH_SECONDS):
                        await ended.wait()
            raise asyncpg.ConnectionDoesNotExistError("the server closed the connection")
        finally:
            connection.terminate()

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self.heard_at = time.time()
        self._channels[channel](str(payload)[:_LONGEST_PAYLOAD])
