"""The one transaction of an attempt, on a connection of the handlers' pool."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import asyncpg

from reactor.database.connection import Connection
from reactor.database.failures import DRIVER_ERRORS, Failure, is_transient, server_failure
from reactor.database.retry import Backoff, RetryPolicy
from reactor.errors import DatabaseUnreachable
from reactor.log import get_logger

log = get_logger(__name__)

_RETRY = RetryPolicy(longest_seconds=0.5)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class Transaction:
    """Open from `begin` to `commit` or `roll_back`."""

    def __init__(self, pool: Pool, connection: Any, transaction: Any) -> None:
        self.connection: Connection = connection
        self._pool = pool
        self._transaction = transaction
        self._cleaning_up = connection.cleaning_up  # of the connection itself, also after the pool took it back
        self._is_ending = False
        self._is_to_be_replaced = False

    @classmethod
    async def begin(cls, pool: Pool, check: Callable[[], None], job_id: int) -> "Transaction":
        """Waits for a database that is unreachable: without it the attempt could not end in any way."""
        backoff = Backoff(_RETRY)
        while True:
            try:
                return await cls._try_to_begin(pool, check, job_id)
            except (*DRIVER_ERRORS, DatabaseUnreachable) as error:
                if not is_transient(error):
                    raise
                await backoff.pause()
                check()

    @classmethod
    async def _try_to_begin(cls, pool: Pool, check: Callable[[], None], job_id: int) -> "Transaction":
        connection: Any = await pool.acquire()
        # An old snapshot would not show the jobs that wait for this one when it ends.
        made = cls(pool, connection, connection.transaction(isolation="read_committed"))
        try:
            # Set in each one: the pool resets what is set for the session. A handler may pause in its transaction, and
            # jobs that it submits there are children of its job.
            settings = ["set local idle_in_transaction_session_timeout = 0", f"set local reactor.parent = {job_id:d}"]
            # If this process is killed, the next attempt may wait for what this one has locked.
            watching = connection.watching
            with connection.adding("; ".join([*settings, watching or ""])):
                await made._transaction.start()
            if watching is None:
                await connection.start_watching()
            check()
        except BaseException:
            await made._give_back()
            raise
        return made

    def undone_by(self, error: BaseException) -> Failure | None:
        """Why the server undid it, where the handler is not to blame: a deadlock, a timeout, a lost connection."""
        failure = server_failure(error) or (Failure.LOST if self._is_gone() else None)
        if failure is Failure.UNAVAILABLE:
            self._is_to_be_replaced = True  # its session may lead to a standby, while new ones lead to the primary
        return failure

    def was_ended_by_sql(self) -> bool:
        """The handler sent COMMIT or ROLLBACK as SQL: earlier work can't be undone, later work is not in it."""
        return not self._is_ending and not self._is_gone() and not self.connection.is_in_transaction()

    async def commit(self) -> None:
        self._is_ending = True  # also if the server refuses it: then it has ended all the same
        with self._cleaning_up():
            await self._transaction.commit()
        await self._give_back()

    async def roll_back(self) -> None:
        if self.was_ended_by_sql():
            log.error("handler ended its transaction by SQL, its work can't be undone")
        try:
            if self._is_to_be_replaced:
                self.connection.terminate()
            else:
                with self._cleaning_up():
                    await self._transaction.rollback()
        except (*DRIVER_ERRORS, asyncio.CancelledError) as error:
            if not self._is_gone():
                self.connection.terminate()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        # The pool discards a connection that it can't reset; our work on it is done by now.
        with suppress(*DRIVER_ERRORS):
            await self._pool.release(self.connection)  # type: ignore[arg-type]

    def _is_gone(self) -> bool:
        """A pool takes back a connection that died: then even `is_closed` raises."""
        try:
            return self.connection.is_closed()
        except asyncpg.InterfaceError:
            return True
