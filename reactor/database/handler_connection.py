"""The connection of a handler's transaction, which saves round trips at its beginning and end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from reactor.database import statements

_WATCH = "set local client_connection_check_interval = '2s'"


class HandlerConnection(asyncpg.Connection):
    """Sends what belongs to the beginning and the end of a transaction in one message with BEGIN, COMMIT or ROLLBACK:
    two round trips less for each transaction."""

    __slots__ = ("_added", "_can_watch", "_is_clean")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._added = ""
        self._is_clean = False
        self._can_watch: bool | None = None

    @property
    def watching(self) -> str | None:
        """The statement with which the server, until the transaction ends, looks for its client while it executes a
        query. Empty: it can't; in all versions, only servers on Linux can. None: not asked yet."""
        return None if self._can_watch is None else _WATCH if self._can_watch else ""

    async def start_watching(self) -> None:
        """In a transaction: behind a pooler, a query outside of one may reach two sessions."""
        self._can_watch = "linux" in await self.fetchval(statements.SERVER_VERSION)
        if self._can_watch:
            await self.execute(_WATCH)

    @contextmanager
    def adding(self, statements: str) -> Iterator[None]:
        """The statement without parameters that the block executes is followed by these."""
        self._added = statements
        try:
            yield
        finally:
            self._added = ""

    @contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """The end of a transaction in the block also undoes what the next user of the connection must not meet:
        settings, advisory locks, LISTEN. The connection is to be released directly after it."""
        with self.adding(super().get_reset_query()):
            yield
        self._is_clean = True

    def get_reset_query(self) -> str:
        """Asked for by the pool, at each release."""
        is_clean, self._is_clean = self._is_clean, False
        return "" if is_clean else str(super().get_reset_query())

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        status = await super().execute(f"{query}\n{self._added}" if self._added else query, *args, **options)
        return str(status)
