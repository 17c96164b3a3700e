"""One attempt at a job: its phase, what it holds in its transaction, and how that is committed or undone."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reactor.client.submit import encode_jobs, new_job
from reactor.database.connection import Connection
from reactor.database.failures import is_transient
from reactor.database.jsonb import storable
from reactor.errors import ChainInStep, TransactionInParallel
from reactor.handlers.step_log import StepLog
from reactor.handlers.transaction import Pool, Transaction
from reactor.handlers.upstream import Upstream, upstream
from reactor.job import Job, JobState
from reactor.lifecycle.settle import settle, settled
from reactor.lifecycle.steps import record_steps
from reactor.lifecycle.writers import Writers
from reactor.log import Logger, get_logger
from reactor.outcome import Cancelled, Completed, Ending, Outcome

log = get_logger("reactor.job")


@dataclass(frozen=True)
class Services:
    """What the attempts of one process share."""

    writers: Writers
    pool: Pool
    resources: Mapping[str, Any]


class Phase(Enum):
    """READY → RUNNING → CLOSING → ENDED. A handler that does not stop is ABANDONED; if it stops after all, CLOSING."""

    READY = "claimed, and its handler not called yet"
    RUNNING = "its handler runs"
    ABANDONED = "its handler runs although it should have stopped, and nothing waits for it"
    CLOSING = "its handler has stopped, and its end is being written or may have been"
    ENDED = "nothing can be done through it any more"


# Python 3.11 finds a name of the module ten times as fast as the member of an enum, and each attempt needs three.
_READY, _RUNNING, _ABANDONED, _CLOSING, _ENDED = Phase


class Stop(Enum):
    """Why an attempt must stop."""

    TAKEN = "The job was cancelled, or taken from this attempt."
    TIMEOUT = "It ran out of time."
    SHUTDOWN = "This pod is shutting down."


class Attempt:
    """Handlers see it through their context. A handler that is called again within its attempt gets a new one."""

    __slots__ = (
        "_children",
        "_log",
        "_parallel_groups",
        "_reports_fraction",
        "_reports_message",
        "_running_steps",
        "_step_log",
        "_transaction",
        "is_lost",
        "is_to_be_repeated",
        "job",
        "phase",
        "services",
        "stop_because",
    )

    def __init__(self, job: Job, services: Services) -> None:
        self.job = job
        self.services = services
        self.phase: Phase = _READY
        self.stop_because: Stop | None = None
        self.is_lost = False
        """The database says that the job is not this attempt's any more."""
        self.is_to_be_repeated = False
        """The server undid the transaction, and the handler is not to blame: a deadlock, a lost connection."""
        self._step_log: StepLog | None = None
        self._reports_fraction = False
        self._reports_message = False
        self._running_steps = 0
        self._parallel_groups = 0
        self._children: list[str] | None = None
        self._transaction: Transaction | None = None
        self._log: Logger | None = None

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
    def step_log(self) -> StepLog:
        """Made when it is asked for: few handlers have steps."""
        if self._step_log is None:
            self._step_log = StepLog(self.job)
        return self._step_log

    # Its phase

    def start(self) -> None:
        """The handler is about to be called."""
        self.phase = _RUNNING

    def abandon(self) -> None:
        """The handler does not stop; an attempt that is closing has no handler to wait for."""
        if self.phase is _RUNNING:
            self.phase = _ABANDONED

    def close(self) -> None:
        """The handler has stopped."""
        self.phase = _CLOSING

    def end(self) -> None:
        """What the handler left behind, a task perhaps, gets nothing more from here."""
        self.phase = _ENDED

    def repeat(self) -> "Attempt":
        """For calling the handler once more: nothing that the first call did, or left behind, reaches the second."""
        attempt = Attempt(self.job, self.services)
        attempt.stop_because = self.stop_because
        attempt.is_lost = self.is_lost
        self.end()
        return attempt

    def stop(self, why: Stop) -> None:
        """The first reason counts, except that nothing may be written of a job that is lost."""
        if self.stop_because is None or why is Stop.TAKEN:
            self.stop_because = why

    @property
    def can_be_cancelled(self) -> bool:
        """Not before its first step, which would never come; nor while it closes: its end is being written,
        and a job that is missing from the database's list of claims may be missing because of that."""
        return self.phase is _RUNNING or self.phase is _ABANDONED

    @property
    def is_abandoned(self) -> bool:
        return self.phase is _ABANDONED

    @property
    def is_stopping(self) -> bool:
        return self.stop_because is not None or self.is_lost or self.phase is _ENDED

    def check(self) -> None:
        """Raises Cancelled if this attempt must stop."""
        if self.stop_because is not None:
            raise Cancelled(self.stop_because.value)
        if self.is_lost:
            raise Cancelled("The job was taken from this attempt.")
        if self.phase is _ENDED:
            raise Cancelled("The attempt has ended.")

    def check_held(self, is_held: bool) -> None:
        """`is_held`: whether the database says that the job is still this attempt's."""
        if not is_held:
            self.is_lost = True
        self.check()

    # Progress

    async def progress(self, fraction: float | None, message: str | None) -> None:
        self.check()
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if message is not None:
            message = storable(message)
        self._reports_fraction |= fraction is not None
        self._reports_message |= message is not None
        self.check_held(
            await self.services.writers.progress.report(self.job.id, self.job.attempt_id, fraction, message)
        )

    def put_progress(self, fraction: float | None, message: str | None) -> None:
        """Progress that follows from the steps, unless the handler reports its own. Nothing waits for it."""
        fraction = None if self._reports_fraction else fraction
        message = None if self._reports_message else message
        if fraction is not None or message is not None:
            self.services.writers.progress.put(self.job.id, self.job.attempt_id, fraction, message)

    # Its job, in the database

    async def is_held(self) -> bool:
        """Asks the database whether the job is still this attempt's. Waits for a commit that is under way."""
        return await self.services.writers.progress.report(self.job.id, self.job.attempt_id, None, None)

    async def committed_state(self) -> JobState | None:
        """Asks the database in which state this attempt has left its job. None: the job was taken from it."""
        ending = self.ending(Completed())
        states = await self.services.writers.ask(lambda connection: settled(connection, [ending]))
        return states.get(self.job.id)

    async def upstream(self) -> list[Upstream]:
        self.check()
        # Its own connection where it has one: others may have all of the pool's, and wait for theirs as well.
        if self._transaction is not None:
            return await upstream(self._transaction.connection, self.job.id)
        async with self.services.pool.acquire() as connection:
            return await upstream(connection, self.job.id)  # type: ignore[arg-type]

    # What is committed together, or undone together

    def chain(self, job_type: str, payload: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        if self._running_steps and (self._parallel_groups or not self.in_transaction):
            raise ChainInStep
        # As text: the caller may change its payload afterwards, and gets the error for what can't be stored.
        child = encode_jobs([new_job(job_type, payload, options)])[1:-1]
        if self._children is None:
            self._children = []
        self._children.append(child)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The root transaction, or a savepoint in it. An exception that leaves the block undoes what the block did."""
        self.check()
        if self._parallel_groups:
            raise TransactionInParallel
        completed_before = 0 if self._step_log is None else self._step_log.held_back
        chained_before = self._chained
        try:
            if self._transaction is None:
                async with self._root() as connection:
                    yield connection
            else:
                async with self._transaction.connection.transaction():
                    yield self._transaction.connection
        except BaseException as error:
            self._drop_children(chained_before)
            if self._step_log is not None:
                self._step_log.undo(completed_before, error)
            raise

    @asynccontextmanager
    async def _root(self) -> AsyncIterator[Connection]:
        transaction = await Transaction.begin(self.services.pool, self.check)
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
    async def step(self) -> AsyncIterator[None]:
        """A step that fails undoes what it did in the transaction, also if the transaction began with it."""
        chained_before = self._chained
        self._running_steps += 1
        try:
            if self._parallel_groups:
                yield
            elif self._transaction is not None:
                async with self.transaction():
                    yield
            else:
                async with self._undone_from_the_start():
                    yield
        except BaseException:
            self._drop_children(chained_before)
            raise
        finally:
            self._running_steps -= 1

    @asynccontextmanager
    async def _undone_from_the_start(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            self.note(error)
            if self._step_log is not None:
                self._step_log.undo(0, error)
            await self.roll_back()
            raise

    @contextmanager
    def parallel_steps(self) -> Iterator[None]:
        """Steps that run in parallel share no transaction."""
        self._parallel_groups += 1
        try:
            yield
        finally:
            self._parallel_groups -= 1

    @property
    def _chained(self) -> int:
        return 0 if self._children is None else len(self._children)

    def _drop_children(self, since: int) -> None:
        if self._children is not None:
            del self._children[since:]

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def lost_its_transaction(self) -> bool:
        return self._transaction is not None and self._transaction.was_ended_by_sql()

    def note(self, error: BaseException) -> None:
        """Whether the server undid the transaction: asked before the transaction is rolled back and forgotten."""
        if self._transaction is not None:
            self.is_to_be_repeated |= self._transaction.is_undone_by(error)

    # Its end

    def outcome(self, result: dict[str, Any] | None) -> Outcome:
        """What a handler's return means for its job."""
        if self._step_log is None:
            return Completed(result)
        return self._step_log.outcome(result, with_message=not self._reports_message)

    def ending(self, outcome: Outcome, *, with_children: bool = False) -> Ending:
        children = f"[{','.join(self._children)}]" if with_children and self._children else None
        return Ending(self.job.id, self.job.attempt_id, outcome, children)

    async def record_last_steps(self) -> None:
        """Before an end without a transaction: writes what is still to be written of its steps."""
        if self._step_log is not None:
            for record in self._step_log.last_records():
                self.check_held(await self.services.writers.steps.record(record))

    async def commit(self, ending: Ending) -> JobState | None:
        """Data, steps, children and end in one commit. None: the attempt was stale, and nothing of it is left."""
        assert self._transaction is not None
        connection = self._transaction.connection
        try:
            state = None
            if await self._commit_steps(connection):
                state = (await settle(connection, [ending])).get(self.job.id)
            if state is None:
                await self.roll_back()
                return None
            await self._transaction.commit()
        except BaseException as error:
            self.is_to_be_repeated = is_transient(error)
            await self.roll_back()
            raise
        self._transaction = None
        return state

    async def _commit_steps(self, connection: Connection) -> bool:
        records = [] if self._step_log is None else self._step_log.last_records()
        return not records or self.job.attempt_id in await record_steps(connection, records)

    async def roll_back(self) -> None:
        # Forgotten first, because the rollback may be interrupted, and called again.
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.roll_back()
