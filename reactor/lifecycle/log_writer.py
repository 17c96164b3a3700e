"""Stores what handlers log, at intervals. The last lines are written together with the end of their attempt (settle).

A log must not hold up anything: a job whose row is locked is left for the next time, and lines that the database
refuses don't keep an end from being written.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import had_no_effect, summary
from reactor.database.jsonb import ascii_only, decoded, encode
from reactor.database.reconnecting import ReconnectingConnection
from reactor.job import Job
from reactor.job_log import LEVELS, JobLog, Level, Line, LogOptions, Room
from reactor.lifecycle.batch_writer import CAUSED_BY_ITEMS
from reactor.log import get_logger

log = get_logger(__name__)

INTERVAL_SECONDS = 0.5
"""What a process that is killed loses at most, and what readers wait for."""
REFUSED_PAUSE_SECONDS = 5.0
HAND_OVER_SECONDS = 1.0
LINES_AT_ONCE = 1000
"""In one statement: ends of jobs wait for it."""


class LogWriter:
    def __init__(
        self, connection: ReconnectingConnection, wake: Callable[[], object], options: LogOptions | None = None
    ) -> None:
        self.options = options or LogOptions()
        self._connection = connection
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._room = Room(self.options)
        self._waiting: dict[JobLog, None] = {}
        """Logs with lines to be stored, of running attempts."""
        self._leaving: set[JobLog] = set()
        """Of attempts that another process, or another statement, will end: this is the last chance."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._writing: asyncio.Future[None] | None = None
        self._not_before = 0.0

    def open(self, job: Job, level: Level | None = None) -> JobLog | None:
        """The log of an attempt. None: nothing is to be stored."""
        threshold = LEVELS.index(level or self.options.level)
        if LEVELS[threshold] == "off":
            return None
        is_later = job.started_at < job.locked_at
        return JobLog(
            job.id,
            job.attempt_id,
            job.attempts,
            threshold,
            self._room,
            self._on_lines,
            is_later_attempt=is_later,
        )

    @property
    def has_work(self) -> bool:
        """Something can be written now."""
        return self._is_due and bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Nothing is left that this process could store. Lines of running attempts wait for the next interval."""
        return not self._leaving

    def forget(self, job_log: JobLog) -> None:
        """Its lines are written with the attempt's end, or not at all."""
        self._waiting.pop(job_log, None)

    async def hand_over(self, job_log: JobLog) -> bool:
        """For an end that is not written by the task of the writers. False: some lines are still in flight."""
        self.forget(job_log)
        if self._writing is not None and job_log.is_in_flight:
            await asyncio.wait([self._writing], timeout=HAND_OVER_SECONDS)
            self.forget(job_log)
        return not job_log.is_in_flight

    def put_last(self, job_log: JobLog) -> None:
        """All lines, now: the attempt is about to end elsewhere."""
        self._waiting[job_log] = None
        self._leaving.add(job_log)
        self._is_due = True
        self._wake()

    def _on_lines(self, job_log: JobLog) -> None:
        """In any thread."""
        self._waiting[job_log] = None
        if self._timer is None:
            if threading.get_ident() == self._thread:
                self._start_timer()
            else:
                with suppress(RuntimeError):  # the loop has ended, and left a thread behind
                    self._loop.call_soon_threadsafe(self._start_timer)

    def _start_timer(self) -> None:
        if self._timer is None:
            pause = max(INTERVAL_SECONDS, self._not_before - time.monotonic())
            self._timer = self._loop.call_later(pause, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._waiting:
            self._is_due = True
            self._wake()

    async def write(self) -> None:
        """Some of the lines. Returns when they are stored, or put back."""
        if not self._is_due:
            return
        batch = self._take()
        self._is_due = False
        if not batch:
            return
        self._writing = self._loop.create_future()
        try:
            await self._write(batch)
        finally:
            self._writing.set_result(None)
            self._writing = None

    async def _write(self, batch: Sequence[tuple[JobLog, list[Line]]]) -> None:
        maybe_done = False

        async def try_once(connection: Connection) -> Any:
            nonlocal maybe_done
            try:
                return await write_logs(connection, batch, maybe_done=maybe_done)
            except BaseException as error:
                maybe_done = maybe_done or isinstance(error, asyncio.CancelledError) or not had_no_effect(error)
                raise

        held: Sequence[int] = ()
        try:
            record, _ = await self._connection.retry(try_once, unless=CAUSED_BY_ITEMS)
        except Exception as error:  # also a bug of ours: the writers have more important things to write
            self.refuse(summary(error))
        else:
            held = record["held"]
            if record["error"] is not None:
                self.refuse(record["error"])
                held = ()
        self._settle(batch, set(held))

    def _take(self) -> list[tuple[JobLog, list[Line]]]:
        batch, count = [], 0
        for job_log in list(self._waiting):
            if count >= LINES_AT_ONCE:
                break
            del self._waiting[job_log]  # before its lines are taken: further ones list it again
            if lines := job_log.take(LINES_AT_ONCE - count, is_end=job_log in self._leaving):
                batch.append((job_log, lines))
                count += len(lines)
            if job_log.has_more:
                self._waiting[job_log] = None
            if not lines:
                self._leaving.discard(job_log)
        return batch

    def _settle(self, batch: Sequence[tuple[JobLog, list[Line]]], held: set[int]) -> None:
        for job_log, _ in batch:
            if job_log in self._leaving:
                self._leaving.discard(job_log)
                job_log.close()
            elif job_log.job_id in held:
                job_log.confirm()
            else:
                job_log.put_back()
        if self._leaving or all(job_log.job_id in held for job_log, _ in batch):
            self._is_due = bool(self._waiting)
        if self._waiting:
            self._start_timer()

    def refuse(self, error: str) -> None:
        """Lines could not be stored. The next try is later, so that a table that is locked holds up nothing."""
        self._not_before = time.monotonic() + REFUSED_PAUSE_SECONDS
        if self._room.note_refusal():
            log.warning("logs of handlers can't be stored", error=error)


async def write_logs(
    connection: Connection, batch: Sequence[tuple[JobLog, Sequence[Line]]], *, maybe_done: bool = False
) -> Any:
    """Lines of running attempts. Returns a record: the jobs that were `held`, and the `error`."""
    logs = [job_log for job_log, _ in batch]
    return await connection.fetchrow(
        statements.WRITE_LOGS,
        [job_log.job_id for job_log in logs],
        [job_log.attempt_id for job_log in logs],
        [job_log.attempt for job_log in logs],
        trimmed(logs),
        logs[0].max_attempts,
        maybe_done,
        *columns(connection, [lines for _, lines in batch]),
    )


def trimmed(logs: Iterable[JobLog]) -> list[int] | None:
    """Jobs whose earlier attempts' lines are to be limited."""
    return [job_log.job_id for job_log in logs if job_log.is_later_attempt] or None


def columns(connection: Connection, lines_of_jobs: Sequence[Sequence[Line]]) -> tuple[list[Any] | None, ...]:
    """The parameters that describe lines; the first one is the place of their job, from 1."""
    lines = list(chain.from_iterable(lines_of_jobs))
    if connection.get_settings().server_encoding != "UTF8":
        lines = [_escaped(line) for line in lines]
    now = time.monotonic()
    return (
        [place for place, of_job in enumerate(lines_of_jobs, 1) for _ in of_job],
        [line.number for line in lines],
        [now - line.logged_at for line in lines],
        [line.level for line in lines],
        [line.step for line in lines] if any(line.step for line in lines) else None,
        [line.message for line in lines],
        [line.fields for line in lines] if any(line.fields for line in lines) else None,
    )


def _escaped(line: Line) -> Line:
    """An end that is refused because of its log could not be repeated in the transaction of a handler."""
    fields = None if line.fields is None else encode(ascii_only(decoded(line.fields)))
    return line._replace(message=ascii_only(line.message), step=ascii_only(line.step), fields=fields)
