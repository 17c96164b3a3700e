"""What a handler has at hand besides its job: progress, steps, its transaction, children, resources, a log."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from reactor.children import Child
from reactor.client.submit import JobOptions
from reactor.database.connection import Connection
from reactor.handlers.attempt import Attempt
from reactor.handlers.backoff import Backoff
from reactor.handlers.children import ChildOptions, Inherited
from reactor.handlers.step import Step, tries
from reactor.handlers.steps import AT_ONCE, Summary, run_step, run_steps
from reactor.handlers.transaction import Pool
from reactor.handlers.upstream import Upstream
from reactor.job import Job
from reactor.log import Logger

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession


class Context:
    """The public face of one attempt. It ends with the attempt, and so does everything that was opened through it."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def job(self) -> Job:
        return self._attempt.job

    @property
    def attempt_id(self) -> UUID:
        """The fence: new for each attempt. For other systems that can refuse an older attempt's writes."""
        return self._attempt.job.attempt_id

    @property
    def resources(self) -> Mapping[str, Any]:
        """What the functions decorated with @lifespan opened for this process."""
        return self._attempt.services.resources

    @property
    def pool(self) -> Pool:
        """One connection for each slot of this process. Work done on one is committed separately from the job."""
        return self._attempt.pool

    @property
    def log(self) -> Logger:
        return self._attempt.log

    @property
    def cancelled(self) -> bool:
        return self._attempt.must_stop

    def check(self) -> None:
        """Raises Cancelled if this attempt must stop. For long stretches of work without an await."""
        self._attempt.check()

    async def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """How far the job is (0 to 1), and one line for people. Clients see it when this returns."""
        await self._attempt.progress(fraction, message)

    async def meta(self, **facts: Any) -> dict[str, Any]:
        """Adds facts to the job's meta, and returns all of them. They are visible when this returns, and stay however
        the attempt ends; a fact that belongs to the handler's data belongs into the result."""
        return await self._attempt.meta(facts)

    async def upstream(self) -> list[Upstream]:
        """The jobs that this one waited for, with their results, in the order of their ids."""
        return await self._attempt.upstream()

    async def chain(
        self,
        job_type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        depends_on: Iterable[Child | int] = (),
        after_end_of: Iterable[Child | int] = (),
        inherit: Iterable[Inherited] = (),
        **options: Unpack[JobOptions],
    ) -> Child:
        """A job to be created when this one is settled, in its pipeline.

        It starts when all of `depends_on` are completed, and all of `after_end_of` have ended: children that were
        chained before, and ids of jobs that exist.

        An attempt that does not complete creates none, so a retry does not duplicate them. A step can chain only in
        ctx.transaction(), which makes its completion part of the same commit.
        """
        return self._attempt.unit_of_work.chain(
            job_type, payload, ChildOptions(depends_on, after_end_of, inherit, options)
        )

    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        max_attempts: int | None = None,
        backoff: Backoff | float | timedelta | None = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Calls the function, an `async def` or a `def` (in a thread), and stores what it returns: a later attempt gets
        that, and does not call it again.

        What the function raises is stored as the step's error and raised here, after as many runs as it may have
        (see Step). Its result is anything that JSON can hold.
        """
        step = Step(
            name, function, *arguments, max_attempts=max_attempts, backoff=backoff, timeout_seconds=timeout_seconds
        )
        return await run_step(self._attempt, step)

    async def steps(
        self,
        groups: Iterable[Iterable[Step]],
        *,
        at_once: int = AT_ONCE,
        max_attempts: int | None = None,
        backoff: Backoff | float | timedelta | None = None,
        timeout_seconds: float | None = None,
    ) -> Summary:
        """Runs groups one after the other, and up to `at_once` steps of a group in parallel. All are recorded as
        planned first, so that clients see them from the start. A step that fails does not stop the others, which
        continue while it waits for its next run. `max_attempts`, `backoff`, `timeout_seconds`: of the steps that don't
        have their own.

        The job's state follows from its steps: a handler can return the summary, or a result of its own.
        """
        return await run_steps(
            self._attempt, groups, at_once, tries("all steps", max_attempts, backoff, timeout_seconds)
        )

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """The attempt's one transaction: committed with its children and its end when the handler returns.

        Leaving the block does not commit. An exception that leaves it undoes what the block did.
        """
        return self._attempt.unit_of_work.transaction(self._attempt.check)

    @asynccontextmanager
    async def session(self) -> AsyncIterator["AsyncSession"]:
        """The same transaction for SQLAlchemy. Leaving the block flushes; the session's own commit commits nothing."""
        from reactor.handlers.sqlalchemy_session import session_on

        async with self.transaction() as connection, session_on(connection) as session:
            yield session


async def chain_job(
    parent: Context,
    job_type: str,
    payload: Mapping[str, Any] | None = None,
    *,
    depends_on: Iterable[Child | int] = (),
    after_end_of: Iterable[Child | int] = (),
    inherit: Iterable[Inherited] = (),
    **options: Unpack[JobOptions],
) -> Child:
    """The same as `parent.chain`, under another name."""
    return await parent.chain(
        job_type, payload, depends_on=depends_on, after_end_of=after_end_of, inherit=inherit, **options
    )
