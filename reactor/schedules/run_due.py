"""Submits the jobs of due schedules, once per tick. Every pod runs this; there is no leader.

One transaction locks the schedule's row, inserts its jobs and sets its next tick. A second pod finds the row locked or
already advanced, and a pod that dies in between leaves nothing behind. A tick is not repeated even if next_run_at is
set back by hand: ticks at or before last_run_at are skipped, and a job's idempotency key is its schedule's name and
tick.
"""

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.failures import is_transient
from reactor.errors import TimingInvalid
from reactor.log import get_logger
from reactor.schedules.cron import Timing, parse_timing

log = get_logger(__name__)

_MAX_SCHEDULES = 20
_MAX_TICKS = 100
# An exclusive job may wait for another open transaction, and this worker's claims wait for it in turn.
_LOCK_SECONDS = 0.5
_LOCKED_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Plan:
    """The ticks to run now, and the next one."""

    ticks: list[datetime]
    next: datetime


async def run_due(connection: Connection) -> float:
    """Submits the jobs that are due. Returns the seconds until the next check; infinite: until a schedule changes."""
    if (pause := await _seconds_until_next(connection)) > 0:
        return pause
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(statements.SET_LOCK_TIMEOUT, round(_LOCK_SECONDS * 1000))
        due = await connection.fetch(statements.DUE_SCHEDULES, _MAX_SCHEDULES)
        is_behind = [await _advance(connection, schedule) for schedule in due]
        pause = await _seconds_until_next(connection)
    if pause > 0:
        return pause
    return 0.0 if any(is_behind) or len(due) == _MAX_SCHEDULES else _LOCKED_PAUSE_SECONDS


async def _seconds_until_next(connection: Connection) -> float:
    seconds: float | None = await connection.fetchval(statements.NEXT_SCHEDULE)
    return float("inf") if seconds is None else seconds


async def _advance(connection: Connection, schedule: asyncpg.Record) -> bool:
    """Runs one schedule. Its error is written to its row and does not stop the others. Returns whether more is due."""
    name = schedule["name"]
    try:
        timing = parse_timing(schedule["cron"], schedule["every"], schedule["timezone"], schedule["created_at"])
        plan = plan_ticks(
            timing, schedule["next_run_at"], schedule["last_run_at"], schedule["now"], schedule["catch_up"]
        )
    except TimingInvalid as error:
        log.error("invalid schedule", schedule=name, error=error.message)
        problem = f"{error.message[:1].upper()}{error.message[1:]}. {error.remedy}"
        await connection.execute(statements.ADVANCE_SCHEDULE, name, None, None, None, problem)
        return False
    job_id, refusal = None, None
    if plan.ticks:
        try:
            job_id = await _submit(connection, name, plan.ticks)
        except asyncpg.LockNotAvailableError:
            log.warning("schedule is locked", schedule=name)
            return False
        except asyncpg.PostgresError as error:
            if is_transient(error):
                raise
            refusal = f"The job of {plan.ticks[-1]:%Y-%m-%d %H:%M:%S %Z} was refused: {error}"
            log.error("job of schedule refused", schedule=name, error=str(error), sqlstate=error.sqlstate)
    last = plan.ticks[-1] if plan.ticks else None
    await connection.execute(statements.ADVANCE_SCHEDULE, name, plan.next, last, job_id, refusal)
    return bool(plan.next <= schedule["now"])


def plan_ticks(
    timing: Timing,
    next_run_at: datetime | None,
    last_run_at: datetime | None,
    now: datetime,
    catch_up: bool,
    max_ticks: int = _MAX_TICKS,
) -> Plan:
    """Without `catch_up`, only the latest of several missed ticks is run."""
    due = next_run_at
    if due is not None and last_run_at is not None and due <= last_run_at:
        due = timing.after(last_run_at)
    if due is None or due > now:
        return Plan([], due or timing.after(now))
    if not catch_up:
        return Plan([max(due, timing.latest(now))], timing.after(now))
    ticks = [due]
    while (later := timing.after(ticks[-1])) <= now and len(ticks) < max_ticks:
        ticks.append(later)
    return Plan(ticks, later)


async def _submit(connection: Connection, name: str, ticks: list[datetime]) -> int | None:
    """Submits the jobs. Returns the newest one; None if an unfinished exclusive job blocks all of them."""
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
