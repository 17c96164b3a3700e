"""Runs a plain function in a thread, with a context whose calls wait for their answers."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar, Unpack
from uuid import UUID

from reactor.client.submit import JobOptions
from reactor.concurrency import in_thread
from reactor.database.connection import Connection
from reactor.handlers.context import Context
from reactor.handlers.step_log import as_result
from reactor.handlers.steps import AT_ONCE, Step, Summary
from reactor.handlers.upstream import Upstream
from reactor.job import Job
from reactor.log import Logger
from reactor.outcome import Skip

Answer = TypeVar("Answer")


class SyncConnection:
    """The attempt's connection as a thread can use it: the calls of asyncpg that fetch and write, waited for."""

    def __init__(self, connection: Connection, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._connection = connection
        self._wait = wait

    def execute(self, query: str, *arguments: Any) -> str:
        return self._wait(self._connection.execute(query, *arguments))  # type: ignore[no-any-return]

    def executemany(self, query: str, arguments: list[tuple[Any, ...]]) -> None:
        self._wait(self._connection.executemany(query, arguments))

    def fetch(self, query: str, *arguments: Any) -> list[Any]:
        return self._wait(self._connection.fetch(query, *arguments))  # type: ignore[no-any-return]

    def fetchrow(self, query: str, *arguments: Any) -> Any:
        return self._wait(self._connection.fetchrow(query, *arguments))

    def fetchval(self, query: str, *arguments: Any) -> Any:
        return self._wait(self._connection.fetchval(query, *arguments))


class SyncContext:
    """The context of a handler that is a plain `def`. A thread can't be interrupted: each call here looks whether the
    attempt must stop, and raises Cancelled if so."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    @property
    def job(self) -> Job:
        return self._context.job

    @property
    def attempt_id(self) -> UUID:
        return self._context.attempt_id

    @property
    def resources(self) -> Mapping[str, Any]:
        return self._context.resources

    @property
    def log(self) -> Logger:
        return self._context.log

    @property
    def cancelled(self) -> bool:
        return self._context.cancelled

    def check(self) -> None:
        self._context.check()

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        self._wait(self._context.progress(fraction, message))

    def upstream(self) -> list[Upstream]:
        return self._wait(self._context.upstream())

    def chain(self, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]) -> None:
        self._wait(self._context.chain(job_type, payload, **options))

    def step(self, name: str, function: Callable[..., Answer], *arguments: Any) -> Any:
        """As Context.step; the function is called in this thread."""
        logbook = self._context.own_steps.logbook
        if not self._wait(logbook.begin(name)):
            return logbook.results[name]
        try:
            with self._block(self._context.undoing()):
                result = as_result(name, function(*arguments))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._wait(logbook.fail(name, error))
            if isinstance(error, Skip):
                return None
            raise
        return self._wait(logbook.succeed(name, result))

    def steps(self, groups: Iterable[Iterable[Step]], *, at_once: int = AT_ONCE) -> Summary:
        """As Context.steps; each plain function is called in a thread of its own."""
        return self._wait(self._context.steps(groups, at_once=at_once))

    @contextmanager
    def transaction(self) -> Iterator[SyncConnection]:
        with self._block(self._context.transaction()) as connection:
            yield SyncConnection(connection, self._wait)

    @contextmanager
    def _block(self, block: AbstractAsyncContextManager[Answer]) -> Iterator[Answer]:
        async def enter() -> Answer:
            return await block.__aenter__()

        async def leave() -> None:
            await block.__aexit__(None, None, None)

        entered = self._wait(enter())
        try:
            yield entered
        except BaseException as error:
            # Also when the attempt must stop: what the block did is undone in any case.
            self._settle_block(block.__aexit__(type(error), error, error.__traceback__))
            raise
        self._answer(leave())

    def _settle_block(self, leaving: Awaitable[Any]) -> None:
        async def leave() -> None:
            try:
                await leaving
            except BaseException:
                return  # it raises what the block raised, which goes on by itself

        self._answer(leave())

    def _wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            self._context.check()
        except BaseException:
            call.close()
            raise
        return self._answer(call)

    def _answer(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


async def run_in_thread(
    executor: Executor, function: Callable[..., Answer], arguments: Callable[[Any], tuple[Any, ...]], context: Context
) -> Answer:
    sync = SyncContext(context, asyncio.get_running_loop())
    return await in_thread(executor, lambda: function(*arguments(sync)), lambda: context.is_abandoned)
