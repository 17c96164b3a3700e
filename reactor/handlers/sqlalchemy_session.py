"""An SQLAlchemy session on a connection that belongs to the attempt and is in a transaction already.

SQLAlchemy's transaction is then a savepoint, because asyncpg nests: neither the session's commits nor its end can
commit or close the transaction around it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from reactor.database.connection import Connection
from reactor.database.failures import server_failure
from reactor.error_text import describe
from reactor.outcome import Fail


class _Lent:
    """The connection, which the session can't close."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 (asyncpg's signature)
        pass

    def terminate(self) -> None:
        pass


@asynccontextmanager
async def session_on(connection: Connection) -> AsyncIterator[AsyncSession]:
    """Leaving the block flushes; an exception that leaves it, other than a Fail that keeps data, undoes what was not
    committed in it."""

    async def lend() -> Any:
        return _Lent(connection)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=lend, poolclass=NullPool)
    async with engine.connect() as wrapped, AsyncSession(wrapped, expire_on_commit=False) as session:
        try:
            yield session
        except Fail as error:
            if error.keep_data:
                await _keep(session, error)
            raise
        await session.commit()


async def _keep(session: AsyncSession, failed: Fail) -> None:
    try:
        await session.commit()
    except SQLAlchemyError as error:
        if server_failure(error) is not None:
            raise
        raise Fail(
            f"{failed}\n\nIts data could not be kept: {describe(error)}", result=failed.result, message=failed.message
        ) from error
