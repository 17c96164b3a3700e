"""A connection that is opened when it is needed, and again after it broke."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from reactor.database import statements
from reactor.database.connection import Connection, open_connection
from reactor.database.failures import TRANSIENT, Failure, classify, had_no_effect, summary
from reactor.database.retry import Backoff, RetryPolicy
from reactor.errors import StatementTimeout
from reactor.log import get_logger

log = get_logger(__name__)
Answer = TypeVar("Answer")

_STATEMENT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_REMEMBER_SECONDS = 60.0
_NOTHING_SENT_SECONDS = 1e-5
_ANSWERED = frozenset({Failure.REPEATABLE, Failure.LOCKED, Failure.SLOW})
_USABLE = _ANSWERED | {Failure.REFUSED}
"""The connection can be used again."""


class RoundTrip:
    """The shortest operation of the last one or two minutes: little more than the way to the server and back."""

    def __init__(self) -> None:
        self._since = 0.0
        self._before = self._latest = math.inf

    def add(self, started: float, ended: float) -> None:
        if ended - self._since > _REMEMBER_SECONDS:
            self._since, self._before, self._latest = ended, self._latest, math.inf
        if ended - started > _NOTHING_SENT_SECONDS:
            self._latest = min(self._latest, ended - started)

    @property
    def seconds(self) -> float:
        shortest = min(self._before, self._latest)
        return 0.0 if shortest == math.inf else shortest


class ReconnectingConnection:
    """One operation at a time: tasks that share it take turns."""

    retry_policy = RetryPolicy()

    def __init__(
        self, url: str, name: str, statement_seconds: float = _STATEMENT_SECONDS, *, prepares: bool = False
    ) -> None:
        """`prepares`: prepare each statement once, which is faster for frequent ones; impossible through a pooler."""
        self._url = url
        self._name = name
        self._prepares = prepares
        self._statement_seconds = statement_seconds
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._is_lost = False
        self._round_trip = RoundTrip()

    @property
    def round_trip_seconds(self) -> float:
        """How long the server takes to answer at least; 0: not known yet."""
        return self._round_trip.seconds

    def beside(self, suffix: str, statement_seconds: float) -> "ReconnectingConnection":
        """Another one to the same database, for what must not keep the users of this one waiting."""
        return ReconnectingConnection(self._url, f"{self._name} {suffix}", statement_seconds)

    async def open(self) -> None:
        """Now, and not when it is first needed: by then others may have taken all connections."""
        await self.retry(_ask_the_time)

    async def retry(
        self, operation: Callable[[Connection], Awaitable[Answer]], *, unless: Collection[Failure] = ()
    ) -> tuple[Answer, bool]:
        """Runs `operation` until it succeeds or is refused; a database that is away is waited for.

        `unless`: failures that are raised instead of repeated, for a caller that can do something about them. The
        second value is `maybe_done`: an earlier try may have taken effect, although its answer was lost.
        """
        backoff, maybe_done, tries = Backoff(self.retry_policy), False, 0
        while True:
            started, tries = time.monotonic(), tries + 1
            try:
                answer = await self.once(operation)
            except Exception as error:
                failure = classify(error)
                if failure is Failure.BUG:
                    log.error("internal error in a database operation", connection=self._name, error=repr(error))
                if failure not in TRANSIENT or failure in unless:
                    raise
                if failure in _ANSWERED:
                    seconds = round(time.monotonic() - started, 1)
                    log.info(
                        "statement repeated", connection=self._name, tries=tries, seconds=seconds, error=summary(error)
                    )
                if not had_no_effect(error):
                    maybe_done = True
                if failure not in _ANSWERED or isinstance(error, StatementTimeout):
                    self._report_lost(error)
            else:
                self._report_back()
                return answer, maybe_done
            await backoff.pause()

    async def once(self, operation: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Runs `operation`. A connection that failed is not used again."""
        async with self._turn:
            limit = asyncio.timeout(self._statement_seconds)
            try:
                # A network that drops every packet reports no error: an operation that takes this long has lost its
                # server.
                async with limit:
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await open_connection(self._url, name=self._name, prepares=self._prepares)
                    started = time.monotonic()
                    answer = await operation(self._connection)
                    self._round_trip.add(started, time.monotonic())
                    return answer
            except TimeoutError as error:
                # The goodbye cancels the statement: a server that still works on it would keep its locks.
                await self.close()
                if limit.expired():
                    raise StatementTimeout(self._statement_seconds) from error
                raise
            except BaseException as error:
                if classify(error) not in _USABLE:
                    self.drop()
                raise

    def _report_lost(self, error: Exception) -> None:
        """Once, also if several tasks wait for the database."""
        if not self._is_lost:
            self._is_lost = True
            log.warning("database lost", connection=self._name, error=str(error) or type(error).__name__)

    def _report_back(self) -> None:
        if self._is_lost:
            self._is_lost = False
            log.info("database back", connection=self._name)

    def drop(self) -> None:
        """Without a goodbye, which may take forever."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            try:
                await self._connection.close(timeout=_CLOSE_SECONDS)
            except Exception:  # whatever it is, the connection is not used any more
                self.drop()
        self._connection = None


async def _ask_the_time(connection: Connection) -> None:
    await connection.execute(statements.CLOCK)
