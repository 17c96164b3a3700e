"""What a handler has at hand besides its job: progress, its transaction, children, resources, a log."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from reactor.database import Connection
from reactor.encode import storable
from reactor.job import Job, JobState
from reactor.line import CONNECTION_LOST, SERVER_STOPS, TO_BE_REPEATED
from reactor.log import Logger, get_logger
from reactor.outcome import Cancelled, Completed, Ending, Outcome
from reactor.settle import settle, settled
from reactor.settler import Settler
from reactor.submit import NewJob, encode_jobs, new_job

log = get_logger("reactor.job")

_AWAY_PAUSE_SECONDS = 0.5

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


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
        "_connection",
        "_log",
        "_services",
        "_transaction",
        "is_abandoned",
        "job",
        "stop_reason",
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
        self._services = services
        self._children: list[NewJob] = []
        self._connection: Connection | None = None
        self._transaction: Any = None
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
        if not await self._services.settler.progress(self.job.id, self.job.attempt_id, fraction, message):
            self.stop_reason = self.stop_reason or "The job was taken from this attempt."
        self.check()

    async def confirm(self) -> bool:
        """Whether the job is still this attempt's, by the database's account."""
        return await self._services.settler.progress(self.job.id, self.job.attempt_id, None, None)

    def anew(self) -> "Context":
        """For running the handler once more within this attempt."""
        context = Context(self.job, self._services)
        context.stop_reason = self.stop_reason
        return context

    async def chain(self, job_type: str, payload: Mapping[str, Any] | None = None, **options: Any) -> None:
        """A job to be created when this one is settled, in its pipeline; `options` are the further fields of NewJob.

        An attempt that does not complete creates none, so a retry does not double them.
        """
        child = new_job(job_type, payload, options)
        encode_jobs([child])  # what can't be stored is refused here, where the handler can be blamed for it
        self._children.append(child)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The attempt's one transaction: committed with its children and its end when the handler returns.

        Leaving the block does not commit. An exception that leaves it undoes what the block did.
        """
        self.check()
        if self._connection is None:
            connection = await self._begin()
            try:
                yield connection
            except BaseException as error:
                self.note(error)
                await self.roll_back()
                raise
        else:
            async with self._connection.transaction():
                yield self._connection

    async def _begin(self) -> Connection:
        """A database that is away is waited for: without it this attempt could not end in any way."""
        while True:
            try:
                return await self._try_to_begin()
            except (*CONNECTION_LOST, *SERVER_STOPS):
                await asyncio.sleep(_AWAY_PAUSE_SECONDS)
                self.check()

    async def _try_to_begin(self) -> Connection:
        connection: Any = await self._services.pool.acquire()
        # An old snapshot would not show the jobs that wait for this one when it ends.
        transaction = connection.transaction(isolation="read_committed")
        try:
            await transaction.start()
        except BaseException:
            await self._services.pool.release(connection)
            raise
        self._connection, self._transaction = connection, transaction
        return self._connection

    @property
    def in_transaction(self) -> bool:
        return self._connection is not None

    def ending(self, outcome: Outcome, with_children: bool) -> Ending:
        children = encode_jobs(self._children) if with_children and self._children else None
        return Ending(self.job.id, self.job.attempt_id, outcome, children)

    def note(self, error: BaseException) -> None:
        """Looks whether this is the end of the transaction, before that is forgotten."""
        if self._connection is not None:
            undone = isinstance(error, (*TO_BE_REPEATED, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError))
            self.to_be_repeated |= undone or _is_gone(self._connection)

    async def commit(self, ending: Ending) -> JobState | None:
        """Data, children and end in one commit. None: the attempt was stale, and nothing of it is left."""
        assert self._connection is not None
        try:
            state = (await settle(self._connection, [ending])).get(self.job.id)
            if state is None:
                await self.roll_back()
                return None
            await self._transaction.commit()
        except BaseException as error:
            self.to_be_repeated = isinstance(error, (*TO_BE_REPEATED, *CONNECTION_LOST, *SERVER_STOPS))
            await self.roll_back()
            raise
        await self._give_back()
        return state

    async def committed_state(self) -> JobState | None:
        """What a commit whose answer was lost made of the job. None: it made nothing, the job is somebody else's."""
        ending = self.ending(Completed(), with_children=False)
        states = await self._services.settler.ask(lambda connection: settled(connection, [ending]))
        return states.get(self.job.id)

    async def roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            await self._transaction.rollback()
        except (asyncpg.PostgresError, *CONNECTION_LOST):
            if not _is_gone(self._connection):
                self._connection.terminate()
        await self._give_back()

    async def _give_back(self) -> None:
        connection, self._connection, self._transaction = self._connection, None, None
        # The pool does away with a connection that it can't put in order; what we wanted of it is done by now.
        with suppress(asyncpg.PostgresError, *CONNECTION_LOST):
            await self._services.pool.release(connection)  # type: ignore[arg-type]


def _is_gone(connection: Connection) -> bool:
    """A pool takes a connection that died away from whoever has it, who can't even ask any more."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True
