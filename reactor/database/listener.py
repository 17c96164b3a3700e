"""Receives notifications on its own connection, which is watched and replaced when it dies."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection, connect, open_connection
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
    """For the answer, and for the notification of a probe."""
    retry_policy: RetryPolicy = _RETRY


class Listener:
    """Never in a transaction and never from a pool: both would lose notifications silently.

    A pooler in transaction mode loses them too: LISTEN succeeds in a session that serves other clients afterwards. So a
    notification is sent first, and must arrive. Once it has, the same session keeps delivering for as long as it is the
    one that answers: a notification at each check would wake all listeners of the database for the sake of one.
    """

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
        """Notifications arrive."""
        self.heard_at: float | None = None
        """When the last notification came, in seconds since 1970."""
        self.reconnects = 0
        self._is_deaf = False

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
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            session = await self._session(connection)
            if not await self._hears(connection, session):
                self._note_deaf()
                await asyncio.sleep(self.timings.watch_seconds)
                return
            for channel in self._channels:
                await connection.add_listener(channel, self._hear)
            self.is_listening, self._is_deaf = True, False
            # Only now: what is committed before LISTEN took effect is not notified, and must be looked for.
            self._on_connected()
            while not ended.is_set() and await self._session(connection) == session:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.timings.watch_seconds):
                        await ended.wait()
            raise asyncpg.ConnectionDoesNotExistError("the session has ended")
        finally:
            connection.terminate()

    async def _session(self, connection: Connection) -> int:
        """Which session answers. A network that drops every packet looks like silence, which asyncpg would never
        notice."""
        async with asyncio.timeout(self.timings.answer_seconds):
            session: int = await connection.fetchval(statements.BACKEND_PID)
        return session

    async def _hears(self, connection: Connection, session: int) -> bool:
        """Whether a notification arrives. Behind a pooler (its key names another session than the one that answers) it
        is sent through a connection of its own: on this one, the same session might deliver it by accident."""
        channel, arrived = f"reactor_probe_{uuid4().hex}", asyncio.Event()
        await connection.add_listener(channel, lambda *_: arrived.set())
        if session == connection.get_server_pid():
            await connection.execute(statements.SEND_TEST_NOTIFICATION, channel)
        else:
            async with connect(self._url, name="reactor probe", prepares=False) as sender:
                await sender.execute(statements.SEND_TEST_NOTIFICATION, channel)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.timings.answer_seconds):
                await arrived.wait()
        return arrived.is_set()

    def _note_deaf(self) -> None:
        self.is_listening = False
        if not self._is_deaf:
            self._is_deaf = True
            log.error(
                "notifications do not arrive",
                reason="the connection goes through a pooler in transaction mode; jobs wait for the next poll",
                remedy="Set REACTOR_LISTEN_URL to the server's own URL.",
            )

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        self.heard_at = time.time()
        self._channels[channel](str(payload)[:_LONGEST_PAYLOAD])
