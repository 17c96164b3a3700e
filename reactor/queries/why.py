"""Tells why a job is not running, where it runs, or how it ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.duration import in_words
from reactor.errors import JobUnknown
from reactor.job import JobState


class Code(StrEnum):
    NO_JOB_TYPE = "no_job_type"
    DEPENDENCIES = "dependencies"
    WAITS_FOR_NOTHING = "waits_for_nothing"
    NOT_DUE = "not_due"
    ATTEMPTS_USED_UP = "attempts_used_up"
    DRAINING = "draining"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_FULL = "queue_full"
    SCOPE_BUSY = "scope_busy"
    SCOPE_TURN = "scope_turn"
    NO_HANDLER = "no_handler"
    NO_POD_FOR_QUEUE = "no_pod_for_queue"
    DUE = "due"
    RUNNING = "running"
    WORKER_DEAD = "worker_dead"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HANDLER_NOT_STOPPED = "handler_not_stopped"


@dataclass(frozen=True)
class Reason:
    code: Code
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Why:
    job_id: int
    job_type: str | None
    state: JobState
    reasons: list[Reason]


async def why(connection: Connection, job_id: int) -> Why:
    row = await connection.fetchrow(statements.WHY, job_id)
    if row is None:
        raise JobUnknown(job_id)
    state = JobState(row["state"])
    match state:
        case JobState.WAITING | JobState.PENDING:
            reasons = list(_not_running(row)) or [_due(row)]
        case JobState.RUNNING:
            reasons = [_running(row)]
        case _:
            reasons = list(_ended(row, state))
    return Why(row["id"], row["job_type"], state, reasons)


def _not_running(row: asyncpg.Record) -> Iterator[Reason]:
    """What won't pass by itself is told of waiting jobs too: they would meet it next."""
    if row["job_type"] is None:
        yield Reason(Code.NO_JOB_TYPE, "It has no job_type: a row adopted from elsewhere, which is never run.")
        return
    if row["state"] == JobState.WAITING:
        yield _dependencies(row)
    if row["is_early"]:
        yield _not_due(row)
    if row["attempts"] >= row["quota"]:
        more = "" if row["quota_is_own"] else ", unless its handler has registered more"
        yield Reason(
            Code.ATTEMPTS_USED_UP,
            f"{row['attempts']} of {row['quota']} attempts are used up: it will not be taken{more}. "
            f"`reactor cancel {row['id']}` and `reactor retry {row['id']}` give it a fresh quota.",
            {"attempts": row["attempts"], "quota": row["quota"]},
        )
    if row["draining"]:
        yield Reason(Code.DRAINING, "Pods take no jobs while draining is on. `reactor drain off` ends that.")
    if row["is_paused"]:
        yield Reason(
            Code.QUEUE_PAUSED,
            f"The queue {row['queue']} is paused. `reactor resume {row['queue']}` opens it.",
            {"queue": row["queue"]},
        )
    if row["state"] == JobState.PENDING:
        yield from _in_the_way(row)
    yield from _pods(row)


def _dependencies(row: asyncpg.Record) -> Reason:
    count, named = row["needed_count"], [_object(job) for job in row["needed"]]
    if count == 0:
        return Reason(
            Code.WAITS_FOR_NOTHING,
            "It waits although nothing it needs is open. The pods put that right; if it stays, report it.",
        )
    shown = ", ".join(f"{job['id']} ({job['state']})" for job in named)
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return Reason(
        Code.DEPENDENCIES,
        f"It waits for {'job' if count == 1 else 'jobs'} {shown}{more}.",
        {"jobs": named, "count": count},
    )


def _not_due(row: asyncpg.Record) -> Reason:
    seconds = row["due_in_seconds"]
    if seconds is None:
        return Reason(Code.NOT_DUE, "It is not to run until somebody changes its run_after.", {"in_seconds": None})
    at = row["run_after"]
    return Reason(
        Code.NOT_DUE,
        f"It is not to run before {at:%Y-%m-%d %H:%M:%S %Z}, which is in {in_words(seconds)}.",
        {"run_after": at, "in_seconds": seconds},
    )


def _in_the_way(row: asyncpg.Record) -> Iterator[Reason]:
    """Other jobs, which end: these reasons pass."""
    if row["max_running"] is not None and row["queue_running"] >= row["max_running"]:
        facts = {"queue": row["queue"], "running": row["queue_running"], "max_running": row["max_running"]}
        yield Reason(
            Code.QUEUE_FULL,
            f"The queue {row['queue']} is full: {row['queue_running']} of {row['max_running']} jobs run.",
            facts,
        )
    if row["holder_id"] is not None:
        yield _scope_busy(row)
    elif row["parked"]:
        ahead = row["ahead_id"]
        turn = f"job {ahead} is ahead of it" if ahead else "it is let out with the pods' next look at forgotten scopes"
        yield Reason(
            Code.SCOPE_TURN,
            f"The scope {row['scope']} is free, and it is not its turn yet: {turn}.",
            {"scope": row["scope"], "ahead_id": ahead},
        )


def _scope_busy(row: asyncpg.Record) -> Reason:
    is_running = row["holder_state"] == JobState.RUNNING
    holder = "its own earlier run" if row["holder_id"] == row["id"] else f"job {row['holder_id']}"
    if not row["holder_is_alive"]:
        how = f"{holder} has it, whose worker on {row['holder_pod']} is dead; the pods free it within their next sweep"
    elif is_running:
        how = f"{holder} has been running on {row['holder_pod']} for {in_words(row['holder_seconds'])}"
    else:
        how = f"{holder} was cancelled, and its handler on {row['holder_pod']} has not stopped yet"
    return Reason(
        Code.SCOPE_BUSY,
        f"The scope {row['scope']} is busy: {how}.",
        {
            "scope": row["scope"],
            "job_id": row["holder_id"],
            "state": row["holder_state"],
            "pod": row["holder_pod"],
            "worker_is_alive": row["holder_is_alive"],
        },
    )


def _pods(row: asyncpg.Record) -> Iterator[Reason]:
    facts = {"job_type": row["job_type"], "queue": row["queue"], "live_pods": row["pods"]}
    if row["pods"] == 0:
        yield Reason(
            Code.NO_HANDLER, f"No pod is alive, so none has the handler for {row['job_type']}. Start one.", facts
        )
        return
    live = f"{row['pods']} live pod{'s' if row['pods'] > 1 else ''}"
    if row["with_handler"] == 0:
        none = "The one live pod does not have" if row["pods"] == 1 else f"None of the {live} has"
        yield Reason(Code.NO_HANDLER, f"{none} the handler for {row['job_type']}.", facts)
    if row["with_queue"] == 0:
        yield Reason(Code.NO_POD_FOR_QUEUE, f"None of the {live} works on the queue {row['queue']}.", facts)
    elif row["with_handler"] > 0 and row["with_both"] == 0:
        yield Reason(
            Code.NO_POD_FOR_QUEUE,
            f"None of the {row['with_handler']} that have the handler for {row['job_type']}, of {live}, "
            f"works on the queue {row['queue']}.",
            facts,
        )


def _due(row: asyncpg.Record) -> Reason:
    return Reason(
        Code.DUE,
        "It is due and will be taken as soon as a pod has room: "
        f"{row['with_both']} live pod{'s' if row['with_both'] > 1 else ''} can run it, "
        f"with {row['held']} of {row['capacity']} places taken.",
        {"live_pods": row["with_both"], "held": row["held"], "capacity": row["capacity"]},
    )


def _running(row: asyncpg.Record) -> Reason:
    facts = {
        "pod": row["locked_by"],
        "since": row["locked_at"],
        "for_seconds": row["held_seconds"],
        "attempt": row["attempts"],
        "quota": row["quota"],
        "lease_seconds": row["lease_seconds"],
    }
    where = (
        f"on {row['locked_by']}, attempt {row['attempts']} of {row['quota']}, taken {in_words(row['held_seconds'])} ago"
    )
    if row["worker_is_alive"]:
        return Reason(
            Code.RUNNING,
            f"It runs {where}. Its worker is alive: the lease holds for {in_words(row['lease_seconds'])} more.",
            facts,
        )
    return Reason(
        Code.WORKER_DEAD,
        f"It ran {where}, and that worker is dead. A pod puts it back with its next sweep; "
        f"`reactor recover {row['id']}` does it now, with a fresh quota of attempts.",
        facts,
    )


def _ended(row: asyncpg.Record, state: JobState) -> Iterator[Reason]:
    verb = {JobState.COMPLETED: "completed", JobState.PARTIAL: "completed in part", JobState.FAILED: "failed"}
    said = row["error"] or row["status_message"] or ""
    facts = {"finished_at": row["finished_at"], "attempts": row["attempts"], "error": row["error"]}
    if row["broken_by"] is not None:
        facts |= {"broken_by": row["broken_by"], "broken_by_state": row["broken_by_state"]}
        said += f" `reactor retry {row['broken_by']}` brings this one back too."
    at = f" at {row['finished_at']:%Y-%m-%d %H:%M:%S %Z}" if row["finished_at"] else ""
    again = f", after attempt {row['attempts']}" if state is JobState.FAILED and row["attempts"] else ""
    yield Reason(
        Code(state.value), f"It {verb.get(state, 'was cancelled')}{at}{again}{': ' if said else '.'}{said}", facts
    )
    if row["is_held"]:
        yield Reason(
            Code.HANDLER_NOT_STOPPED,
            f"Its handler on {row['locked_by']} has not stopped yet, and keeps the scope until then."
            if row["worker_is_alive"]
            else f"Its worker on {row['locked_by']} is dead; what it held is freed with the next sweep.",
            {"pod": row["locked_by"], "worker_is_alive": row["worker_is_alive"]},
        )


def _object(value: Any) -> dict[str, Any]:
    """A connection may have a codec for jsonb, or not."""
    decoded: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return decoded
