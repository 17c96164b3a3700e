"""Connections whose operations have names, so that a deadlock is reported as a pair of operations."""

import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from reactor.database.connection import Connection, connect
from reactor.database.failures import DRIVER_ERRORS
from tests.stress.report import Report

_BLOCKED = re.compile(r"Process (\d+) waits for (\w+) on ([^;]+); blocked by process (\d+)")
_ROLLED_BACK = (asyncpg.DeadlockDetectedError,)


@dataclass
class Sessions:
    url: str
    report: Report
    jitter: float = 0.0
    """How often the journal's trigger pauses while it holds a row's lock: widens the windows of races."""
    _latest: dict[int, str] = field(default_factory=dict)
    """The latest operation of each server process."""

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[Connection]:
        async with connect(self.url, name=f"stress {name}") as connection:
            await connection.execute(f"set stress.jitter = '{self.jitter}'")
            yield connection

    @asynccontextmanager
    async def doing(
        self, connection: Connection, operation: str, *, refusals: Collection[type[asyncpg.PostgresError]] = ()
    ) -> AsyncIterator[None]:
        """Counts the operation. Deadlocks and errors that it may not raise are violations; all errors end here.

        `refusals`: what the database may answer, such as a unique violation for a taken key.
        """
        try:
            if not connection.is_closed():
                self._latest[connection.get_server_pid()] = operation
            yield
        except _ROLLED_BACK as error:
            self.report.violation(*self._pair(operation, error))
        except tuple(refusals) as error:
            self.report.count(f"{operation} refused ({error.sqlstate})")
        except (*DRIVER_ERRORS, AttributeError) as error:  # asyncpg raises the last one too, after a loss
            if connection.is_closed():
                self.report.count("connection lost")  # a simulated worker was killed
                return
            where = (getattr(error, "context", None) or "").replace("\n", "; ")
            self.report.violation("error", f"{operation}: {type(error).__name__} {error} {where}")
        else:
            self.report.count(operation)

    def _pair(self, operation: str, error: asyncpg.PostgresError) -> tuple[str, str]:
        """The kind of the violation, which names the operations, and what each waited for."""
        waits = _BLOCKED.findall(error.detail or "")
        names = {pid: self._latest.get(int(pid), "?") for wait in waits for pid in (wait[0], wait[3])}
        detail = "; ".join(f"{names[a]} waits for {lock} on {what} of {names[b]}" for a, lock, what, b in waits)
        where = (getattr(error, "context", None) or "").replace("\n", "; ")
        return f"deadlock: {' x '.join(sorted(names.values()))}", f"{detail} (rolled back: {operation}, {where})"
