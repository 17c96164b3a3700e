"""Runs a plain function in a thread, with a context whose calls block until they are answered."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar, Unpack
from uuid import UUID

from reactor.children import Child
from reactor.client.submit import JobOptions
from reactor.concurrency import in_thread
from reactor.database.connection import Connection
from reactor.handlers import record_step
from reactor.handlers.attempt import Attempt
from reactor.handlers.children import ChildOptions, Inherited
from reactor.handlers.step_log import as_result
from reactor.handlers.steps import AT_ONCE, Step, Summary, run_steps
from reactor.handlers.stored_log import STEP
from reactor.handlers.upstream import Upstream
from reactor.job import Job
from reactor.log import Logger
from reactor.outcome import Skip

Answer = TypeVar("Answer")


class SyncConnection:
    """The attempt's connection as a thread can use it: asyncpg's calls that fetch and write, as blocking calls."""

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
    """The context of a handler that is a plain `def`. A thread can't be interrupted: each call here checks whether the
    attempt must stop, and raises Cancelled if so."""

    __slots__ = ("_attempt", "_loop")

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt = attempt
        self._loop = loop

    @property
    def job(self) -> Job:
        return self._attempt.job

    @property
    def attempt_id(self) -> UUID:
        return self._attempt.job.attempt_id

    @property
    def resources(self) -> Mapping[str, Any]:
        return self._attempt.services.resources

    @property
    def log(self) -> Logger:
        return self._attempt.log

    @property
    def cancelled(self) -> bool:
        return self._attempt.is_stopping

    def check(self) -> None:
        self._attempt.check()

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        self._wait(self._attempt.progress(fraction, message))

    def meta(self, **facts: Any) -> dict[str, Any]:
        return self._wait(self._attempt.meta(facts))

    def upstream(self) -> list[Upstream]:
        return self._wait(self._attempt.upstream())

    def chain(
        self,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        depends_on: Iterable[Child | int] = (),
        after_end_of: Iterable[Child | int] = (),
        inherit: Iterable[Inherited] = (),
        **options: Unpack[JobOptions],
    ) -> Child:
        async def chain() -> Child:
            return self._attempt.unit_of_work.chain(
                job_type, payload, ChildOptions(depends_on, after_end_of, inherit, options)
            )

        return self._wait(chain())

    def step(self, name: str, function: Callable[..., Answer], *arguments: Any) -> Any:
        """As Context.step; the function is called in this thread."""
        if not self._wait(record_step.begin(self._attempt, name)):
            return self._attempt.step_log.results[name]
        token = STEP.set(name)
        try:
            with self._block(lambda: self._attempt.unit_of_work.step(self._attempt.check)):
                result = as_result(name, function(*arguments))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._wait(record_step.fail(self._attempt, name, error))
            if isinstance(error, Skip):
                return None
            raise
        finally:
            STEP.reset(token)
        return self._wait(record_step.succeed(self._attempt, name, result))

    def steps(self, groups: Iterable[Iterable[Step]], *, at_once: int = AT_ONCE) -> Summary:
        """As Context.steps; each plain function is called in a thread of its own."""
        return self._wait(run_steps(self._attempt, groups, at_once))

    @contextmanager
    def transaction(self) -> Iterator[SyncConnection]:
        with self._block(lambda: self._attempt.unit_of_work.transaction(self._attempt.check)) as connection:
            yield SyncConnection(connection, self._wait)

    @contextmanager
    def _block(self, make: Callable[[], AbstractAsyncContextManager[Answer]]) -> Iterator[Answer]:
        block: AbstractAsyncContextManager[Answer]

        async def enter() -> Answer:
            nonlocal block
            block = make()  # not in this thread: the attempt makes its unit of work once
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
                return  # it raises what the block raised, which the caller raises

        self._answer(leave())

    def _wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            self._attempt.check()
        except BaseException:
            call.close()
            raise
        return self._answer(call)

    def _answer(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


async def run_in_thread(
    executor: Executor, function: Callable[..., Answer], arguments: Callable[[Any], tuple[Any, ...]], attempt: Attempt
) -> Answer:
    context = SyncContext(attempt, asyncio.get_running_loop())
    return await in_thread(executor, lambda: function(*arguments(context)), lambda: attempt.is_abandoned)
