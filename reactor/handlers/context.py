"""What a handler has at hand besides its job: progress, steps, its transaction, children, resources, a log."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from reactor.client.submit import JobOptions, encode_jobs, new_job
from reactor.database.connection import Connection
from reactor.database.failures import is_transient
from reactor.database.jsonb import storable
from reactor.errors import ChainInStep, TransactionInParallel
from reactor.handlers.step_log import Logbook
from reactor.handlers.steps import AT_ONCE, Step, Steps, Summary
from reactor.handlers.transaction import Pool, Transaction
from reactor.handlers.upstream import Upstream, upstream
from reactor.job import Job, JobState
from reactor.lifecycle.batch_writer import Settler
from reactor.lifecycle.settle import settle, settled
from reactor.lifecycle.steps import record_steps
from reactor.log import Logger, get_logger
from reactor.outcome import Cancelled, Completed, Ending, Outcome

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

log = get_logger("reactor.job")


@dataclass(frozen=True)
class Services:
    """What the contexts of one process share."""

    settler: Settler
    pool: Pool
    resources: Mapping[str, Any]


class Context:
    """One attempt's. It ends with the attempt, and so does everything that was opened through it."""

    __slots__ = (
        "_children",
        "_log",
        "_services",
        "_steps",
        "_steps_called",
        "_transaction",
        "is_abandoned",
        "job",
        "stop_reason",
        "tells_fraction",
        "tells_message",
        "to_be_repeated",
    )

    def __init__(self, job: Job, services: Services) -> None:
        self.job = job
        self.stop_reason: str | None = None
        """Why this attempt must stop; None while it may go on."""
        self.is_abandoned = False
        """The handler does not stop, and nobody waits for it."""
        self.to_be_repeated = False
        """The server undid the transaction, and nobody's to blame: a deadlock, a lost connection."""
        self.tells_fraction = False
        self.tells_message = False
        """The handler itself does: its steps keep silent."""
        self._services = services
        self._steps: Steps | None = None
        self._steps_called = 0
        self._children: list[str] = []
        self._transaction: Transaction | None = None
        self._log: Logger | None = None

    @property
    def attempt_id(self) -> UUID:
        """The fence: new for each attempt. For outside systems that can refuse an older attempt's writes."""
        return self.job.attempt_id

    @property
    def resources(self) -> Mapping[str, Any]:
        """What the functions decorated with @lifespan opened for this process."""
        return self._services.resources

    @property
    def pool(self) -> Pool:
        """As many connections as this process has places for jobs. What is done with one is committed on its own."""
        return self._services.pool

    @property
    def log(self) -> Logger:
        if self._log is None:
            self._log = log.bind(
                job_id=self.job.id,
                job_type=self.job.job_type,
                attempt_id=str(self.job.attempt_id),
                pipeline_id=str(self.job.pipeline_id),
            )
        return self._log

    @property
    def cancelled(self) -> bool:
        return self.stop_reason is not None

    def check(self) -> None:
        """Raises Cancelled if this attempt must stop. For long stretches of work without an await."""
        if self.stop_reason is not None:
            raise Cancelled(self.stop_reason)

    async def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """How far the job is (0 to 1), and one line for people. Seen by others when this returns."""
        self.check()
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if message is not None:
            message = storable(message)
        self.tells_fraction |= fraction is not None
        self.tells_message |= message is not None
        self.hold(await self._services.settler.progress(self.job.id, self.job.attempt_id, fraction, message))

    def say(self, fraction: float | None, message: str | None) -> None:
        """Progress that follows from the steps. Nobody waits for it."""
        fraction = None if self.tells_fraction else fraction
        message = None if self.tells_message else message
        if fraction is not None or message is not None:
            self._services.settler.say(self.job.id, self.job.attempt_id, fraction, message)

    def hold(self, held: bool) -> None:
        """The database's word on whether the job is still this attempt's. Raises Cancelled if it is not."""
        if not held:
            self.stop_reason = self.stop_reason or "The job was taken from this attempt."
        self.check()

    async def confirm(self) -> bool:
        """Whether the job is still this attempt's, by the database's account."""
        return await self._services.settler.progress(self.job.id, self.job.attempt_id, None, None)

    async def committed(self) -> JobState | None:
        """In which state this attempt has left its job, by the database's account. None: it was taken from it."""
        ending = self.ending(Completed(), with_children=False)
        states = await self._services.settler.ask(lambda connection: settled(connection, [ending]))
        return states.get(self.job.id)

    def anew(self) -> "Context":
        """For running the handler once more within this attempt."""
        context = Context(self.job, self._services)
        context.stop_reason = self.stop_reason
        self.end()
        return context

    async def upstream(self) -> list[Upstream]:
        """The jobs that this one waited for, with their results, in the order of their ids."""
        self.check()
        # Its own connection where it has one: others may have all of the pool's, and wait for theirs as well.
        if self._transaction is not None:
            return await upstream(self._transaction.connection, self.job.id)
        async with self._services.pool.acquire() as connection:
            return await upstream(connection, self.job.id)  # type: ignore[arg-type]

    async def chain(
        self, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
    ) -> None:
        """A job to be created when this one is settled, in its pipeline.

        An attempt that does not complete creates none, so a retry does not double them. A step can chain only in
        ctx.transaction(), which makes its completion part of the same commit.
        """
        if self._steps_called and (self.own_steps.in_parallel or not self.in_transaction):
            raise ChainInStep
        # As text: the caller may go on with its payload. And what can't be stored is refused where it can be blamed.
        self._children.append(encode_jobs([new_job(job_type, payload, options)])[1:-1])

    async def step(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the function, an `async def` or a `def` (in a thread), and keeps what it returns: a later attempt gets
        that, and does not call it again.

        What the function raises is kept as the step's error and raised here. Its result is anything that JSON can hold.
        """
        return await self.own_steps.one(Step(name, function, *arguments))

    async def steps(self, groups: Iterable[Iterable[Step]], *, at_once: int = AT_ONCE) -> Summary:
        """Groups one after the other, the steps of a group in parallel, so many at once. All are planned first, so that
        everybody sees what is to come. One that fails stops none of the others.

        The job's state follows from its steps: a handler can return the summary, or something of its own.
        """
        return await self.own_steps.all(groups, at_once)

    @property
    def own_steps(self) -> Steps:
        """Few handlers have any."""
        if self._steps is None:
            self._steps = Steps(self, Logbook(self, self._services.settler))
        return self._steps

    def outcome(self, result: dict[str, Any] | None) -> Outcome:
        """What a handler's return means for its job."""
        return Completed(result) if self._steps is None else self._steps.logbook.outcome(result)

    async def close(self) -> None:
        """Before an end without a transaction: its steps' last words."""
        if self._steps is not None:
            await self._steps.logbook.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The attempt's one transaction: committed with its children and its end when the handler returns.

        Leaving the block does not commit. An exception that leaves it undoes what the block did.
        """
        self.check()
        if self._steps is not None and self._steps.in_parallel:
            raise TransactionInParallel
        completed_before = 0 if self._steps is None else self._steps.logbook.held_back
        chained_before = len(self._children)
        try:
            if self._transaction is None:
                async with self._root() as connection:
                    yield connection
            else:
                async with self._transaction.connection.transaction():
                    yield self._transaction.connection
        except BaseException as error:
            del self._children[chained_before:]
            if self._steps is not None:
                self._steps.logbook.undo(completed_before, error)
            raise

    @asynccontextmanager
    async def session(self) -> AsyncIterator["AsyncSession"]:
        """The same transaction for SQLAlchemy. Leaving the block flushes; the session's own commit is none."""
        from reactor.handlers.sqlalchemy_session import session_on

        async with self.transaction() as connection, session_on(connection) as session:
            yield session

    @asynccontextmanager
    async def _root(self) -> AsyncIterator[Connection]:
        transaction = await Transaction.begin(self._services.pool, self.check)
        if self._transaction is not None:
            await transaction.roll_back()
            raise RuntimeError("An attempt has one transaction: two tasks can't begin it at the same time.")
        self._transaction = transaction
        try:
            yield transaction.connection
        except BaseException as error:
            self.note(error)
            await self.roll_back()
            raise

    @asynccontextmanager
    async def undoing(self) -> AsyncIterator[None]:
        """For a step: if it fails, what it did in the transaction is undone, also if the transaction began with it."""
        chained_before = len(self._children)
        self._steps_called += 1
        try:
            if self.own_steps.in_parallel:
                yield
            elif self._transaction is not None:
                async with self.transaction():
                    yield
            else:
                async with self._undone_from_the_start():
                    yield
        except BaseException:
            del self._children[chained_before:]
            raise
        finally:
            self._steps_called -= 1

    @asynccontextmanager
    async def _undone_from_the_start(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            self.note(error)
            self.own_steps.logbook.undo(0, error)
            await self.roll_back()
            raise

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def lost_its_transaction(self) -> bool:
        return self._transaction is not None and self._transaction.was_ended_by_sql()

    def ending(self, outcome: Outcome, with_children: bool) -> Ending:
        children = f"[{','.join(self._children)}]" if with_children and self._children else None
        return Ending(self.job.id, self.job.attempt_id, outcome, children)

    def note(self, error: BaseException) -> None:
        """Looks whether this is the end of the transaction, before that is forgotten."""
        if self._transaction is not None:
            self.to_be_repeated |= self._transaction.is_undone_by(error)

    async def commit(self, ending: Ending) -> JobState | None:
        """Data, steps, children and end in one commit. None: the attempt was stale, and nothing of it is left."""
        assert self._transaction is not None
        connection = self._transaction.connection
        try:
            state = None
            if await self._record_steps(connection):
                state = (await settle(connection, [ending])).get(self.job.id)
            if state is None:
                await self.roll_back()
                return None
            await self._transaction.commit()
        except BaseException as error:
            self.to_be_repeated = is_transient(error)
            await self.roll_back()
            raise
        self._transaction = None
        return state

    async def _record_steps(self, connection: Connection) -> bool:
        records = [] if self._steps is None else self._steps.logbook.last_records()
        return not records or self.job.attempt_id in await record_steps(connection, records)

    async def roll_back(self) -> None:
        # First, because it may be interrupted, and called again.
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.roll_back()

    def end(self) -> None:
        """What the handler left behind, a task perhaps, gets nothing more from here."""
        self.stop_reason = self.stop_reason or "The attempt has ended."


async def chain_job(
    parent: Context, job_type: str, payload: Mapping[str, Any] | None = None, **options: Unpack[JobOptions]
) -> None:
    """The same as `parent.chain`, for those who look for it by this name."""
    await parent.chain(job_type, payload, **options)
