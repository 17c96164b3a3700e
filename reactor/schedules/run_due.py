"""Inserts the jobs of schedules that are due: on every pod, without a leader, once for each tick.

A tick is one transaction: the schedule's row is locked, its jobs are inserted, and the row is set to its next tick.
Whoever comes second finds the row locked or the tick gone; whoever dies on the way has done nothing. Two things keep a
tick from coming twice even if somebody sets next_run_at back: a tick at or before last_run_at is not run again, and a
job's idempotency key is its schedule's name and its tick.
"""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import is_transient
from reactor.errors import TimingInvalid
from reactor.log import get_logger
from reactor.schedules.cron import Timing, read_timing

log = get_logger(__name__)

_SCHEDULES_AT_ONCE = 20
_TICKS_AT_ONCE = 100
# An exclusive job may have to wait for somebody else's open transaction, and claims wait for us.
_LOCK_SECONDS = 0.5
_LOCKED_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Step:
    """How a schedule moves on."""

    ticks: list[datetime]
    """Those to be run now."""
    next: datetime


async def tick(connection: Connection) -> float:
    """Runs what is due. Returns in how many seconds to look again; infinite: not before a schedule is written."""
    if (pause := await _pause(connection)) > 0:
        return pause
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(statements.WAIT_FOR_LOCKS, round(_LOCK_SECONDS * 1000))
        due = await connection.fetch(statements.DUE_SCHEDULES, _SCHEDULES_AT_ONCE)
        is_behind = [await _advance(connection, schedule) for schedule in due]
        pause = await _pause(connection)
    if pause > 0:
        return pause
    return 0.0 if any(is_behind) or len(due) == _SCHEDULES_AT_ONCE else _LOCKED_PAUSE_SECONDS


async def _pause(connection: Connection) -> float:
    seconds: float | None = await connection.fetchval(statements.NEXT_SCHEDULE)
    return float("inf") if seconds is None else seconds


async def _advance(connection: Connection, schedule: asyncpg.Record) -> bool:
    """One schedule; whatever is wrong with it is written to its row, and does not stop the others. Tells whether it is
    behind: there are more ticks than are run at once."""
    name = schedule["name"]
    try:
        timing = read_timing(schedule["cron"], schedule["every"], schedule["timezone"], schedule["created_at"])
        step = plan(timing, schedule["next_run_at"], schedule["last_run_at"], schedule["now"], schedule["catch_up"])
    except TimingInvalid as error:
        log.error("schedule can't be used", schedule=name, error=error.message)
        complaint = f"{error.message[:1].upper()}{error.message[1:]}. {error.remedy}"
        await connection.execute(statements.MOVE_SCHEDULE, name, None, None, None, complaint)
        return False
    job_id, refusal = None, None
    if step.ticks:
        try:
            job_id = await _run(connection, name, step.ticks)
        except asyncpg.LockNotAvailableError:
            log.warning("schedule waits for a lock", schedule=name)
            return False
        except asyncpg.PostgresError as error:
            if is_transient(error):
                raise
            refusal = f"The job of {step.ticks[-1]:%Y-%m-%d %H:%M:%S %Z} was refused: {error}"
            log.error("schedule's job was refused", schedule=name, error=str(error), sqlstate=error.sqlstate)
    last = step.ticks[-1] if step.ticks else None
    await connection.execute(statements.MOVE_SCHEDULE, name, step.next, last, job_id, refusal)
    return bool(step.next <= schedule["now"])


def plan(
    timing: Timing,
    due: datetime | None,
    ran: datetime | None,
    now: datetime,
    catch_up: bool,
    most: int = _TICKS_AT_ONCE,
) -> Step:
    """What to run now, and when next, for a schedule that was `due` then and last `ran` the tick of that time."""
    if due is not None and ran is not None and due <= ran:
        due = timing.after(ran)
    if due is None or due > now:
        return Step([], due or timing.after(now))
    if not catch_up:
        return Step([max(due, timing.latest(now))], timing.after(now))
    ticks = [due]
    while (later := timing.after(ticks[-1])) <= now and len(ticks) < most:
        ticks.append(later)
    return Step(ticks, later)


async def _run(connection: Connection, name: str, ticks: list[datetime]) -> int | None:
    """The newest of the jobs; None: there is none, since an exclusive one has not finished."""
    keys = [f"schedule:{name}:{tick.isoformat()}" for tick in ticks]
    async with connection.transaction():
        records = await connection.fetch(statements.RUN_SCHEDULE, name, keys)
    newest = None
    for moment, (job_id, outcome) in zip(ticks, records, strict=True):
        if outcome == "busy":
            log.info("schedule skipped a tick", schedule=name, tick=moment.isoformat(), busy_with=job_id)
        else:
            newest = job_id
            log.info("schedule ran", schedule=name, tick=moment.isoformat(), job_id=job_id, outcome=outcome)
    return newest
