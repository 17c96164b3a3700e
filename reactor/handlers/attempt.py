"""One attempt at a job: its phase, why it must stop, and what it reports."""

import json
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

from reactor.database.connection import transaction_timeout
from reactor.database.jsonb import encode, storable
from reactor.handlers.services import Services
from reactor.handlers.step import current_step
from reactor.handlers.step_log import StepLog
from reactor.handlers.stored_log import storing_logger
from reactor.handlers.transaction import Pool
from reactor.handlers.unit_of_work import UnitOfWork
from reactor.handlers.upstream import Upstream, upstream
from reactor.job import Job, JobState
from reactor.job_log import JobLog, Level
from reactor.lifecycle.progress_writer import find_meta
from reactor.lifecycle.settle import releases, settled
from reactor.lifecycle.steps import Progress
from reactor.log import Logger, get_logger
from reactor.outcome import Cancelled, Completed, Ending

log = get_logger("reactor.job")


class Phase(Enum):
    """READY → RUNNING → CLOSING → ENDED. A handler that does not stop is ABANDONED; if it stops after all, CLOSING."""

    READY = "claimed, and its handler not called yet"
    RUNNING = "its handler runs"
    ABANDONED = "its handler runs although it should have stopped, and nothing waits for it"
    CLOSING = "its handler has stopped, and its end is being written or may have been"
    ENDED = "nothing can be done through it any more, by a task that the handler left behind, perhaps"


# Python 3.11 finds a name of the module ten times as fast as the member of an enum, and each attempt needs three.
READY, RUNNING, ABANDONED, CLOSING, ENDED = Phase


class Stop(Enum):
    """Why an attempt must stop."""

    TAKEN = "The job was cancelled, or taken from this attempt."
    TIMEOUT = "It ran out of time."
    SHUTDOWN = "This pod is shutting down."


class Attempt:
    """Handlers see it through their context. A handler that is called again within its attempt gets a new one."""

    held_lately_seconds = 1.0
    __slots__ = (
        "_held_at",
        "_log",
        "_reports_fraction",
        "is_lost",
        "job",
        "job_log",
        "log_level",
        "phase",
        "reports_message",
        "services",
        "stop_because",
        "uses_pool",
        "work",
    )

    def __init__(self, job: Job, services: Services, log_level: Level | None = None) -> None:
        self.job = job
        self.services = services
        self.log_level = log_level
        """The lowest that is stored; None: as for all handlers."""
        self.job_log: JobLog | None = None
        """None until the handler logs something, or if nothing is to be stored."""
        self.phase: Phase = READY
        self.stop_because: Stop | None = None
        self.is_lost = False
        """The database says that the job is not this attempt's any more."""
        self.work: UnitOfWork | None = None
        """None until the handler begins a transaction or a step, or chains a job; most handlers never do."""
        self.uses_pool = False
        """Then errors of the server may be from there."""
        self.reports_message = False
        self._reports_fraction = False
        self._held_at = 0.0
        self._log: Logger | None = None

    @property
    def log(self) -> Logger:
        if self._log is None:
            job, job_log = self.job, self.open_log()
            bound = {
                "job_id": job.id,
                "job_type": job.job_type,
                "attempt_id": str(job.attempt_id),
                "pipeline_id": str(job.pipeline_id),
            }
            self._log = log.bind(**bound)
            if job_log is not None:
                self._log = storing_logger(self._log, job_log, bound)
        return self._log

    def open_log(self) -> JobLog | None:
        if self.job_log is None:
            self.job_log = self.services.writers.logs.open(self.job, self.log_level)
        return self.job_log

    @property
    def unit_of_work(self) -> UnitOfWork:
        """`work`, made when it is asked for."""
        if self.work is None:
            self.work = UnitOfWork(self.job, self.services)
        return self.work

    @property
    def step_log(self) -> StepLog:
        return self.unit_of_work.step_log

    @property
    def pool(self) -> Pool:
        self.uses_pool = True
        return self.services.pool

    # Its phase

    def abandon(self) -> None:
        """The handler does not stop; an attempt that is closing has no handler to wait for."""
        if self.phase is RUNNING:
            self.phase = ABANDONED

    def repeat(self) -> "Attempt":
        """For calling the handler once more: nothing that the first call did, or left behind, reaches the second."""
        attempt = Attempt(self.job, self.services, self.log_level)
        attempt.job_log = self.job_log
        attempt.stop_because = self.stop_because
        attempt.is_lost = self.is_lost
        self.phase = ENDED
        return attempt

    @property
    def can_be_cancelled(self) -> bool:
        """Not before its first step, which would never come; nor while it closes: its end is being written,
        and a job that is missing from the database's list of claims may be missing because of that."""
        return self.phase is RUNNING or self.phase is ABANDONED

    @property
    def is_abandoned(self) -> bool:
        return self.phase is ABANDONED

    @property
    def is_stopping(self) -> bool:
        return self.stop_because is not None or self.is_lost or self.phase is ENDED

    @property
    def must_stop(self) -> bool:
        """For the handler's own code: this attempt must stop, or the step that asks."""
        step = current_step()
        return self.is_stopping or (step is not None and step.is_late)

    def check(self) -> None:
        """Raises Cancelled if this attempt must stop, or the step that calls this."""
        if self.stop_because is not None:
            raise Cancelled(self.stop_because.value)
        if self.is_lost:
            raise Cancelled("The job was taken from this attempt.")
        if self.phase is ENDED:
            raise Cancelled("The attempt has ended.")
        step = current_step()
        if step is not None and step.is_late:
            raise Cancelled("The step ran out of time.")

    def check_held(self, is_held: bool) -> None:
        """`is_held`: whether the database says that the job is still this attempt's."""
        if is_held:
            self._held_at = time.monotonic()
        else:
            self.is_lost = True
        self.check()

    @property
    def was_held_lately(self) -> bool:
        """According to the last answer of the database."""
        return time.monotonic() - self._held_at < self.held_lately_seconds

    # Progress

    async def progress(self, fraction: float | None, message: str | None) -> None:
        self.check()
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if message is not None:
            message = storable(message)
        self._reports_fraction |= fraction is not None
        self.reports_message |= message is not None
        self.check_held(
            await self.services.writers.progress.report(self.job.id, self.job.attempt_id, fraction, message)
        )

    def progress_of_steps(self) -> Progress:
        """Progress that follows from the steps, unless the handler reports its own."""
        fraction, message, counts = self.step_log.progress()
        return Progress(None if self._reports_fraction else fraction, None if self.reports_message else message, counts)

    # Its job, in the database

    async def start_once(self) -> None:
        """Commits that the handler starts now, and must not start again, whatever happens."""
        progress = self.services.writers.progress
        self.check_held(await progress.report(self.job.id, self.job.attempt_id, starts_once=True))

    async def is_held(self) -> bool:
        """Asks the database whether the job is still this attempt's. Waits for a commit that is under way."""
        return await self.services.writers.progress.report(self.job.id, self.job.attempt_id)

    async def meta(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        self.check()
        if facts:
            # As JSON has them now: the caller may change its values while they wait.
            stored = json.loads(encode(facts))
            progress = self.services.writers.progress
            self.check_held(await progress.report(self.job.id, self.job.attempt_id, meta=stored))
        return await self.services.writers.ask(lambda connection: find_meta(connection, self.job.id))

    async def committed_state(self) -> JobState | None:
        """Asks the database in which state this attempt has left its job. None: the job was taken from it."""
        ending = Ending(self.job.id, self.job.attempt_id, Completed())
        states = await self.services.writers.ask(lambda connection: settled(connection, [ending]))
        return states.get(self.job.id)

    async def transaction_timeout(self) -> float:
        """Asks the database for the one that ends sessions of handlers, too, in seconds; 0: none."""
        return await self.services.writers.ask(transaction_timeout)

    async def releases(self) -> int:
        """How often earlier attempts at the job were released."""
        return await self.services.writers.ask(lambda connection: releases(connection, self.job.id))

    async def upstream(self) -> list[Upstream]:
        self.check()
        # Its own connection where it has one: others may have all of the pool's, and wait for theirs as well.
        if self.work is not None and self.work.connection is not None:
            return await upstream(self.work.connection, self.job.id)
        async with self.services.pool.acquire() as connection:
            return await upstream(connection, self.job.id)  # type: ignore[arg-type]
