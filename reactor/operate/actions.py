"""What operators do to jobs, queues and pods, each action with its note in the audit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import storable
from reactor.database.transact import TRIES, transact
from reactor.errors import DatabaseBusy, JobUnknown, NotRecoverable, PipelineUnknown, ReactorError, ScopeTaken
from reactor.job import JobState
from reactor.operate.audit import Operator, note

# Every scope takes a place in the server's shared table of locks until the commit, and that table is small.
_CANCEL_AT_ONCE = 1000
_OPEN = [JobState.WAITING, JobState.PENDING, JobState.RUNNING]
_UNDONE = [JobState.FAILED, JobState.PARTIAL, JobState.CANCELLED]


@dataclass(frozen=True)
class Changed:
    """What became of the jobs that were named."""

    jobs: dict[int, JobState]
    """cancel: the state it was in. retry: the state it is in now; dependants that are back are among these."""
    unfit: dict[int, JobState]
    """Those in a state in which it can't be done."""
    unknown: tuple[int, ...]


async def cancel(connection: Connection, ids: Iterable[int], reason: str, by: Operator) -> Changed:
    """Cancels those that have not finished. A running handler can write nothing from now on, and is told to stop.

    A thousand at a time, each thousand in a transaction of its own.
    """
    wanted, reason = sorted(set(ids)), storable(reason)
    jobs: dict[int, JobState] = {}
    unfit: dict[int, JobState] = {}
    unknown: tuple[int, ...] = ()
    for start in range(0, len(wanted), _CANCEL_AT_ONCE):
        done = await _cancel(connection, wanted[start : start + _CANCEL_AT_ONCE], reason, by)
        jobs |= done.jobs
        unfit |= done.unfit
        unknown += done.unknown
    return Changed(jobs, unfit, unknown)


async def retry(connection: Connection, ids: Iterable[int], by: Operator) -> Changed:
    """Starts finished jobs anew, in one transaction: those that depend on each other wait for each other again."""
    wanted = sorted(set(ids))
    if not wanted:
        return Changed({}, {}, ())

    async def start_anew() -> Changed:
        changed = _states(await connection.fetch(statements.RETRY, wanted))
        done = await _changed(connection, wanted, changed)
        details = {"ids": wanted, "started": _by_name(changed)}
        await note(connection, by, "retry", _named(wanted), details | _left(done))
        return done

    for _ in range(TRIES):
        try:
            return await transact(connection, start_anew)
        except asyncpg.UniqueViolationError:
            taken = await connection.fetchrow(statements.EXCLUSIVE_HOLDERS, wanted)
        # Nobody: whoever was in the way has ended since.
        if taken:
            refused = ScopeTaken(taken["id"], taken["scope"], taken["holder_id"])
            await note(connection, by, "retry", _named(wanted), {"ids": wanted, "refused": refused.message})
            raise refused
    raise DatabaseBusy(TRIES)


async def cancel_pipeline(connection: Connection, pipeline_id: UUID, reason: str, by: Operator) -> Changed:
    """Cancels what has not finished of it, and what that chains meanwhile."""
    jobs: dict[int, JobState] = {}
    while True:
        ids = await _ids_of(connection, pipeline_id, _OPEN)
        done = await cancel(connection, ids, reason, by)
        jobs |= done.jobs
        if not done.jobs:
            return Changed(jobs, done.unfit, ())


async def retry_pipeline(connection: Connection, pipeline_id: UUID, by: Operator) -> Changed:
    """Starts anew whatever of it failed, was done in part, or was cancelled. What is completed stays."""
    return await retry(connection, await _ids_of(connection, pipeline_id, _UNDONE), by)


async def _ids_of(connection: Connection, pipeline_id: UUID, states: list[JobState]) -> list[int]:
    records = await connection.fetch(statements.PIPELINE_JOBS, pipeline_id, states)
    if not records and not await connection.fetchrow(statements.FIND_PIPELINE, pipeline_id):
        raise PipelineUnknown(pipeline_id)
    return [record["id"] for record in records]


async def recover(connection: Connection, job_id: int, by: Operator) -> None:
    """Takes a running job from a worker that is dead; it runs again at once, with a fresh quota of attempts."""

    async def take_back() -> ReactorError | None:
        taken = await connection.fetchrow(statements.RECOVER, job_id)
        refused = None if taken else _not_recoverable(job_id, await connection.fetchrow(statements.HOLDER, job_id))
        details = {"refused": refused.message} if refused else {"recovered": True}
        await note(connection, by, "recover", str(job_id), details)
        return refused

    # Raised when the note has been committed.
    if refused := await transact(connection, take_back):
        raise refused


async def pause(connection: Connection, queue: str, by: Operator) -> bool:
    """Nothing more is taken from the queue; what runs goes on. Returns whether it was paused already."""
    return await _set_paused(connection, queue, True, by)


async def resume(connection: Connection, queue: str, by: Operator) -> bool:
    """Returns whether the queue was paused."""
    return await _set_paused(connection, queue, False, by)


async def limit(connection: Connection, queue: str, max_running: int | None, by: Operator) -> int | None:
    """At most so many jobs of the queue run at once, over all pods; None: no limit. Returns what it was before."""

    async def write() -> int | None:
        was: int | None = await connection.fetchval(statements.LIMIT, queue, max_running)
        await note(connection, by, "limit", queue, {"max_running": max_running, "was": was})
        return was

    return await transact(connection, write)


async def drain(connection: Connection, on: bool, by: Operator) -> bool:
    """While draining no pod takes a job; what runs goes on, what is inserted is kept. Returns what it was before."""

    async def write() -> bool:
        was: bool = await connection.fetchval(statements.DRAIN, on)
        await note(connection, by, "drain", None, {"on": on, "was": was})
        return was

    return await transact(connection, write)


async def _cancel(connection: Connection, ids: list[int], reason: str, by: Operator) -> Changed:
    async def take() -> Changed:
        records = await connection.fetch(statements.CANCEL, ids, reason)
        done = await _changed(connection, ids, {record["id"]: JobState(record["was"]) for record in records})
        details = {"ids": ids, "reason": reason, "cancelled": _by_name(done.jobs)}
        await note(connection, by, "cancel", _named(ids), details | _left(done))
        return done

    return await transact(connection, take)


async def _set_paused(connection: Connection, queue: str, paused: bool, by: Operator) -> bool:
    async def write() -> bool:
        was: bool = await connection.fetchval(statements.PAUSE, queue, paused)
        await note(connection, by, "pause" if paused else "resume", queue, {"was_paused": was})
        return was

    return await transact(connection, write)


async def _changed(connection: Connection, wanted: list[int], jobs: dict[int, JobState]) -> Changed:
    left = [job_id for job_id in wanted if job_id not in jobs]
    unfit = _states(await connection.fetch(statements.STATES, left)) if left else {}
    return Changed(jobs, unfit, tuple(job_id for job_id in left if job_id not in unfit))


def _not_recoverable(job_id: int, holder: asyncpg.Record | None) -> ReactorError:
    if holder is None:
        return JobUnknown(job_id)
    if holder["state"] != JobState.RUNNING:
        remedy = f"`reactor why {job_id}` tells what it waits for, or how it ended."
        return NotRecoverable(job_id, holder["state"], f"it is {holder['state']}, not running", remedy)
    if holder["is_alive"]:
        remedy = (
            "Its handler may just take long. If it hangs, its timeout ends it; or "
            f"`reactor cancel {job_id}` and then `reactor retry {job_id}`."
        )
        return NotRecoverable(job_id, holder["state"], f"its worker on {holder['locked_by']} is alive", remedy)
    why = "a pod is putting it back right now"
    return NotRecoverable(job_id, holder["state"], why, f"Look with `reactor why {job_id}`.")


def _states(records: list[asyncpg.Record]) -> dict[int, JobState]:
    return {record["id"]: JobState(record["state"]) for record in records}


def _by_name(states: dict[int, JobState]) -> dict[str, str]:
    return {str(job_id): state.value for job_id, state in states.items()}


def _left(done: Changed) -> dict[str, Any]:
    return {"unfit": _by_name(done.unfit), "unknown": list(done.unknown)}


def _named(ids: list[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"
