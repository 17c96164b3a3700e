"""What an attempt commits together with its end, or undoes: its transaction, its children, its completed steps."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from reactor.children import Child, Children
from reactor.database.connection import Connection
from reactor.database.failures import Failure, classify, is_transient
from reactor.errors import ChainInStep, TransactionInParallel
from reactor.handlers.children import ChildOptions, encode_child
from reactor.handlers.services import Services
from reactor.handlers.step_log import StepLog
from reactor.handlers.transaction import Transaction
from reactor.job import Job, JobState
from reactor.lifecycle.ending_writer import LARGE_SECONDS, is_large
from reactor.lifecycle.settle import allow_long_end, settle
from reactor.lifecycle.steps import Progress, Record, record_steps
from reactor.outcome import Completed, Ending, Fail, Outcome

Check: TypeAlias = Callable[[], None]
"""Raises Cancelled if the attempt must stop. Passed and not kept: a cycle would keep the payloads of ended jobs."""


class UnitOfWork:
    def __init__(self, job: Job, services: Services) -> None:
        self.undone_by: Failure | None = None
        """Why the server undid the transaction, where the handler is not to blame: a deadlock, a timeout, a lost
        connection."""
        self._job = job
        self._services = services
        self._step_log: StepLog | None = None
        self._running_steps = 0
        self._parallel_groups = 0
        self._children = Children()
        self._transaction: Transaction | None = None

    @property
    def step_log(self) -> StepLog:
        """Made when it is asked for."""
        if self._step_log is None:
            self._step_log = StepLog(self._job)
        return self._step_log

    @property
    def children(self) -> Children | None:
        """None: it has none."""
        return self._children or None

    @property
    def connection(self) -> "Connection | None":
        """Of its transaction."""
        return None if self._transaction is None else self._transaction.connection

    def chain(self, job_type: str, payload: Mapping[str, Any] | None, options: ChildOptions) -> Child:
        if self._running_steps and (self._parallel_groups or not self.in_transaction):
            raise ChainInStep
        # As text: the caller may change its payload afterwards, and gets the error for what can't be stored.
        return self._children.add(job_type, encode_child(self._children, job_type, payload, options))

    @asynccontextmanager
    async def transaction(self, check: Check) -> AsyncIterator[Connection]:
        """The root transaction, or a savepoint in it. An exception that leaves the block undoes what the block did."""
        check()
        if self._parallel_groups:
            raise TransactionInParallel
        completed_before = 0 if self._step_log is None else self._step_log.held_back
        chained_before = len(self._children)
        try:
            if self._transaction is None:
                async with self._root(check) as connection:
                    yield connection
            else:
                async with _savepoint(self._transaction.connection):
                    yield self._transaction.connection
        except BaseException as error:
            if not Fail.keeps_data(error):
                self._children.undo(chained_before)
                if self._step_log is not None:
                    self._step_log.undo(completed_before, error)
            raise

    @asynccontextmanager
    async def _root(self, check: Check) -> AsyncIterator[Connection]:
        transaction = await Transaction.begin(self._services.pool, check, self._job.id)
        if self._transaction is not None:
            await transaction.roll_back()
            raise RuntimeError("An attempt has one transaction: two tasks can't begin it at the same time.")
        self._transaction = transaction
        try:
            yield transaction.connection
        except BaseException as error:
            if not Fail.keeps_data(error):
                self.note(error)
                await self.roll_back()
            raise

    @asynccontextmanager
    async def step(self, check: Check) -> AsyncIterator[None]:
        """A step that fails undoes what it did in the transaction, also if the transaction began with it."""
        chained_before = len(self._children)
        self._running_steps += 1
        try:
            if self._parallel_groups:
                yield
            elif self._transaction is not None:
                async with self.transaction(check):
                    yield
            else:
                async with self._undone_from_the_start():
                    yield
        except BaseException as error:
            if not Fail.keeps_data(error):
                self._children.undo(chained_before)
            raise
        finally:
            self._running_steps -= 1

    @asynccontextmanager
    async def _undone_from_the_start(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            if not Fail.keeps_data(error):
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
    def in_transaction(self) -> bool:
        return self._transaction is not None

    @property
    def lost_its_transaction(self) -> bool:
        return self._transaction is not None and self._transaction.was_ended_by_sql()

    def note(self, error: BaseException) -> None:
        """Whether the server undid the transaction: asked before the transaction is rolled back and forgotten."""
        if self._transaction is not None:
            self.undone_by = self.undone_by or self._transaction.undone_by(error)

    # The end of the attempt

    def outcome(self, result: dict[str, Any] | None, *, with_message: bool) -> Outcome:
        """What a handler's return means for its job."""
        return (
            Completed(result) if self._step_log is None else self._step_log.outcome(result, with_message=with_message)
        )

    def last_steps(self) -> list[Record]:
        """What is still to be written of its steps."""
        return [] if self._step_log is None else self._step_log.last_records()

    def _last_counts(self) -> dict[UUID, Progress]:
        """With the last steps."""
        return {self._job.attempt_id: Progress(counts=self.step_log.progress().counts)}

    async def commit(self, ending: Ending) -> JobState | None:
        """Data, steps, children and end in one commit. None: the attempt was stale, and nothing of it is left."""
        assert self._transaction is not None
        connection = self._transaction.connection
        try:
            state = None
            steps = self.last_steps()
            if not steps or self._job.attempt_id in await record_steps(connection, steps, self._last_counts()):
                if is_large(ending):
                    await allow_long_end(connection, LARGE_SECONDS)
                state = (await settle(connection, [ending])).get(self._job.id)
            if state is None:
                await self.roll_back()
                return None
            await self._transaction.commit()
        except BaseException as error:
            if ending.log is not None:
                ending.log.put_back()
            self.undone_by = self._transaction.undone_by(error) or (classify(error) if is_transient(error) else None)
            await self.roll_back()
            raise
        self._transaction = None
        self._children.commit()
        return state

    @property
    def is_undone(self) -> bool:
        return self.undone_by is not None

    async def roll_back(self) -> None:
        # Forgotten first, because the rollback may be interrupted, and called again.
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await transaction.roll_back()


@asynccontextmanager
async def _savepoint(connection: Connection) -> AsyncIterator[None]:
    """Is rolled back by an exception that leaves it, except for a Fail that keeps data."""
    failed: Fail | None = None
    try:
        async with connection.transaction():
            try:
                yield
            except Fail as error:
                if not error.keep_data:
                    raise
                failed = error
    except asyncpg.InFailedSQLTransactionError:
        if failed is None:
            raise
        # The handler swallowed an error of its SQL, so nothing can be kept. The commit finds out.
    if failed is not None:
        raise failed
