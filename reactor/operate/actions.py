"""Operators' actions on jobs, queues and pods. Each is one transaction together with its audit entry; a cancel or
retry of many jobs takes several."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import anyio
import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.jsonb import storable
from reactor.database.transact import LOCK_SECONDS, TRIES, transact
from reactor.errors import (
    DatabaseBusy,
    JobUnknown,
    LockedElsewhere,
    NotRecoverable,
    PipelineUnknown,
    ReactorError,
    ScopeTaken,
)
from reactor.job import JobState
from reactor.operate.audit import Operator, write_audit

# Each scope holds an entry of the server's small shared lock table until the commit.
_BATCH = 1000
_LEASE_SECONDS = 10.0
"""How long the pods leave the rest of a retry to its caller, after each of its transactions."""
_UNFINISHED = [JobState.WAITING, JobState.PENDING, JobState.RUNNING]
_NOT_COMPLETED = [JobState.FAILED, JobState.PARTIAL, JobState.CANCELLED]


@dataclass(frozen=True)
class Changed:
    """The result of an action for each of the given jobs."""

    jobs: dict[int, JobState]
    """cancel: the previous state. retry: the new state, restored dependants included."""
    unfit: dict[int, JobState]
    """Jobs whose state does not allow the action."""
    unknown: tuple[int, ...]


async def cancel(connection: Connection, ids: Iterable[int], reason: str, by: Operator) -> Changed:
    """Cancels unfinished jobs. A running handler can no longer write anything and is asked to stop.

    Works in batches of a thousand jobs, each in its own transaction.
    """
    requested, reason = sorted(set(ids)), storable(reason)
    jobs: dict[int, JobState] = {}
    unfit: dict[int, JobState] = {}
    unknown: tuple[int, ...] = ()
    for start in range(0, len(requested), _BATCH):
        done = await _cancel_batch(connection, requested[start : start + _BATCH], reason, by)
        jobs |= done.jobs
        unfit |= done.unfit
        unknown += done.unknown
    return Changed(jobs, unfit, unknown)


async def _cancel_batch(connection: Connection, ids: list[int], reason: str, by: Operator) -> Changed:
    async def cancel_jobs() -> Changed:
        records = await connection.fetch(statements.CANCEL, ids, reason)
        done = await _changed(connection, ids, {record["id"]: JobState(record["was"]) for record in records})
        details = {"ids": ids, "reason": reason, "cancelled": _state_names(done.jobs)}
        await write_audit(connection, by, "cancel", _target(ids), details | _unchanged(done))
        return done

    return await transact(connection, cancel_jobs)


async def _changed(connection: Connection, requested: list[int], jobs: dict[int, JobState]) -> Changed:
    unchanged = [job_id for job_id in requested if job_id not in jobs]
    unfit = _states(await connection.fetch(statements.JOB_STATES, unchanged)) if unchanged else {}
    return Changed(jobs, unfit, tuple(job_id for job_id in unchanged if job_id not in unfit))


async def retry(connection: Connection, ids: Iterable[int], by: Operator) -> Changed:
    """Runs finished jobs again, so that dependencies between them apply again.

    Works in transactions of a thousand jobs each. If this is interrupted after the first one, the pods do the rest.
    """
    requested = sorted(set(ids))
    if not requested:
        return Changed({}, {}, ())
    retry_id, done = await _begin_retry(connection, requested, by)
    if retry_id is None:
        return done
    jobs = done.jobs | await _finish_retry(connection, retry_id)
    # Jobs that have ended are not started over if their scope was taken meanwhile, or if they were cancelled.
    left = _states(
        await connection.fetch(statements.JOB_STATES, [job_id for job_id in done.unfit if job_id not in jobs])
    )
    unfit = {job_id: state for job_id, state in left.items() if state.is_terminal or not done.unfit[job_id].is_terminal}
    jobs |= {job_id: state for job_id, state in left.items() if job_id not in unfit}
    return Changed(jobs, unfit, tuple(job_id for job_id in requested if job_id not in jobs and job_id not in unfit))


async def _begin_retry(connection: Connection, ids: list[int], by: Operator) -> tuple[int | None, Changed]:
    """The first transaction. If there is more to do, also returns the id of the retry."""

    async def restart() -> tuple[int | None, Changed]:
        started = _states(await connection.fetch(statements.RETRY, ids))
        retry_id: int | None = await connection.fetchval(statements.KEEP_RETRY, _LEASE_SECONDS)
        done = await _changed(connection, ids, started)
        details = {"ids": ids, "started": _state_names(started)} | _unchanged(done)
        if retry_id is not None:
            unfit = {job_id: state for job_id, state in done.unfit.items() if not state.is_terminal}
            details |= {"unfit": _state_names(unfit), "later": len(done.unfit) - len(unfit)}
        await write_audit(connection, by, "retry", _target(ids), details)
        return retry_id, done

    for _ in range(TRIES):
        try:
            return await transact(connection, restart)
        except asyncpg.UniqueViolationError:
            conflict = await connection.fetchrow(statements.EXCLUSIVE_HOLDERS, ids)
        # None if the holder of the scope has ended since: then try again.
        if conflict:
            refused = ScopeTaken(conflict["id"], conflict["scope"], conflict["holder_id"])
            await write_audit(connection, by, "retry", _target(ids), {"ids": ids, "refused": refused.message})
            raise refused
    raise DatabaseBusy(TRIES)


async def _finish_retry(connection: Connection, retry_id: int) -> dict[int, JobState]:
    """The other transactions. What is locked elsewhere for too long is left to the pods."""

    async def restart_more() -> asyncpg.Record | None:
        return await connection.fetchrow(statements.RETRY_MORE, _BATCH, retry_id, _LEASE_SECONDS)

    jobs: dict[int, JobState] = {}
    locked_seconds = 0.0
    while locked_seconds < LOCK_SECONDS:
        try:
            more = await transact(connection, restart_more)
        except (LockedElsewhere, DatabaseBusy):
            break
        assert more
        jobs |= {job_id: JobState(state) for job_id, state in zip(more["ids"] or (), more["states"] or (), strict=True)}
        pause: float | None = more["next_in_seconds"]
        if pause is None:
            break
        locked_seconds = locked_seconds + pause if pause else 0.0
        await anyio.sleep(pause)
    return jobs


async def cancel_pipeline(connection: Connection, pipeline_id: UUID, reason: str, by: Operator) -> Changed:
    """Cancels the pipeline's unfinished jobs, including those chained in the meantime."""
    jobs: dict[int, JobState] = {}
    while True:
        ids = await _pipeline_job_ids(connection, pipeline_id, _UNFINISHED)
        ids += [record["id"] for record in await connection.fetch(statements.PIPELINE_RETRIES, pipeline_id)]
        done = await cancel(connection, ids, reason, by)
        jobs |= done.jobs
        if not done.jobs:
            return Changed(jobs, done.unfit, ())


async def retry_pipeline(connection: Connection, pipeline_id: UUID, by: Operator) -> Changed:
    """Runs the pipeline's failed, partial and cancelled jobs again. Completed jobs are kept."""
    return await retry(connection, await _pipeline_job_ids(connection, pipeline_id, _NOT_COMPLETED), by)


async def _pipeline_job_ids(connection: Connection, pipeline_id: UUID, states: list[JobState]) -> list[int]:
    records = await connection.fetch(statements.PIPELINE_JOBS, pipeline_id, states)
    if not records and not await connection.fetchrow(statements.FIND_PIPELINE, pipeline_id):
        raise PipelineUnknown(pipeline_id)
    return [record["id"] for record in records]


async def recover(connection: Connection, job_id: int, by: Operator) -> None:
    """Takes a running job from a dead worker. It becomes ready immediately, with a fresh quota of attempts."""

    async def take_from_worker() -> ReactorError | None:
        recovered = await connection.fetchrow(statements.RECOVER, job_id)
        refused = (
            None if recovered else _not_recoverable(job_id, await connection.fetchrow(statements.JOB_HOLDER, job_id))
        )
        details = {"refused": refused.message} if refused else {"recovered": True}
        await write_audit(connection, by, "recover", str(job_id), details)
        return refused

    # Raised after the commit, so that the refusal is audited too.
    if refused := await transact(connection, take_from_worker):
        raise refused


def _not_recoverable(job_id: int, holder: asyncpg.Record | None) -> ReactorError:
    if holder is None:
        return JobUnknown(job_id)
    if holder["state"] != JobState.RUNNING:
        remedy = f"`reactor why {job_id}` explains what it waits for, or how it ended."
        return NotRecoverable(job_id, holder["state"], f"it is {holder['state']}, not running", remedy)
    if holder["is_alive"]:
        remedy = (
            "Its handler may only be slow. If it hangs, its timeout stops it; or run "
            f"`reactor cancel {job_id}`, then `reactor retry {job_id}`."
        )
        return NotRecoverable(job_id, holder["state"], f"its worker on {holder['locked_by']} is alive", remedy)
    why = "a pod is recovering it right now"
    return NotRecoverable(job_id, holder["state"], why, f"Check it with `reactor why {job_id}`.")


async def pause(connection: Connection, queue: str, by: Operator) -> bool:
    """Stops claims from the queue; running jobs continue. Returns whether it was already paused."""
    return await _set_paused(connection, queue, True, by)


async def resume(connection: Connection, queue: str, by: Operator) -> bool:
    """Allows claims from the queue again. Returns whether it was paused."""
    return await _set_paused(connection, queue, False, by)


async def _set_paused(connection: Connection, queue: str, paused: bool, by: Operator) -> bool:
    async def write() -> bool:
        was: bool = await connection.fetchval(statements.PAUSE_QUEUE, queue, paused)
        await write_audit(connection, by, "pause" if paused else "resume", queue, {"was_paused": was})
        return was

    return await transact(connection, write)


async def limit(connection: Connection, queue: str, max_running: int | None, by: Operator) -> int | None:
    """Limits the number of running jobs of the queue across all pods; None: no limit. Returns the previous limit."""

    async def write() -> int | None:
        was: int | None = await connection.fetchval(statements.LIMIT_QUEUE, queue, max_running)
        await write_audit(connection, by, "limit", queue, {"max_running": max_running, "was": was})
        return was

    return await transact(connection, write)


async def drain(connection: Connection, on: bool, by: Operator) -> bool:
    """Stops all claims while on; running jobs continue, and inserted jobs are kept. Returns the previous value."""

    async def write() -> bool:
        was: bool = await connection.fetchval(statements.SET_DRAINING, on)
        await write_audit(connection, by, "drain", None, {"on": on, "was": was})
        return was

    return await transact(connection, write)


def _states(records: list[asyncpg.Record]) -> dict[int, JobState]:
    return {record["id"]: JobState(record["state"]) for record in records}


def _state_names(states: dict[int, JobState]) -> dict[str, str]:
    return {str(job_id): state.value for job_id, state in states.items()}


def _unchanged(done: Changed) -> dict[str, Any]:
    return {"unfit": _state_names(done.unfit), "unknown": list(done.unknown)}


def _target(ids: list[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"
