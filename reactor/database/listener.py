"""Receives notifications on its own connection, which is watched and replaced when it dies."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import asyncpg

from reactor.database import statements
from reactor.database.connection import open_connection
from reactor.database.failures import Failure, classify, summary
from reactor.database.retry import Backoff, RetryPolicy
from reactor.log import get_logger

log = get_logger(__name__)

_RETRY = RetryPolicy(first_seconds=0.1, longest_seconds=5.0)
_LONGEST_PAYLOAD = 1000


@dataclass(frozen=True)
class Timings:
    watch_seconds: float = 10.0
    """How often to check that the server still answers on this connection."""
    answer_seconds: float = 2.0
    retry_policy: RetryPolicy = _RETRY


class Listener:
    """Never in a transaction and never from a pool: both would lose notifications silently."""

    timings = Timings()

    def __init__(
        self, url: str, name: str, channels: Mapping[str, Callable[[str], None]], on_connected: Callable[[], None]
    ) -> None:
        """`channels`: what to call with a notification's payload, which any database user may have sent.

        `on_connected`: called each time that listening begins. Notifications sent before were not received.
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
        backoff = Backoff(self.timings.retry_policy)
        try:
            while True:
                try:
                    await self._listen()
                except Exception as error:
                    if classify(error) is Failure.BUG:
                        raise
                    if self.is_listening:
                        backoff.reset()
                        log.warning("listener lost", error=summary(error))
                self.is_listening = False
                self.reconnects += 1
                await backoff.pause()
        finally:
            self.is_listening = False

    async def _listen(self) -> None:
        connection = await open_connection(self._url, name=self._name, prepares=False)
        try:
            for channel in self._channels:
                await connection.add_listener(channel, self._hear)
            self.is_listening = True
            # Only now: what is committed before LISTEN took effect is not notified, and must be looked for.
            self._on_connected()
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            while not ended.is_set():
                # A network that drops every packet looks like silence, which asyncpg would never notice.
                async with asyncio.timeout(self.timings.answer_seconds):
                    await connection.fetchval(statements.PING)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.timings.watch_seconds):
                        await ended.wait()
            raise asyncpg.ConnectionDoesNotExistError("the server closed the connection")
        finally:
            connection.terminate()

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self.heard_at = time.time()
        self._channels[channel](str(payload)[:_LONGEST_PAYLOAD])
