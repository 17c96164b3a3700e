"""Explains why a job is not running, where it is running, or how it ended."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.duration import format_duration
from reactor.errors import JobUnknown
from reactor.job import JobState
from reactor.suggestion import did_you_mean


class Code(StrEnum):
    NO_JOB_TYPE = "no_job_type"
    DEPENDENCIES = "dependencies"
    RETRYING = "retrying"
    WAITS_FOR_NOTHING = "waits_for_nothing"
    NOT_DUE = "not_due"
    ATTEMPTS_USED_UP = "attempts_used_up"
    DRAINING = "draining"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_FULL = "queue_full"
    LIMIT_FULL = "limit_full"
    RATE_USED_UP = "rate_used_up"
    SCOPE_BUSY = "scope_busy"
    SCOPE_TURN = "scope_turn"
    NO_HANDLER = "no_handler"
    NO_POD_FOR_QUEUE = "no_pod_for_queue"
    DUE = "due"
    RUNNING = "running"
    WORKER_DEAD = "worker_dead"
    WORKER_SILENT = "worker_silent"
    STEP_WAITS = "step_waits"
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
    """All reasons that apply to the job now; at least one."""
    row = await connection.fetchrow(statements.WHY, job_id)
    if row is None:
        raise JobUnknown(job_id)
    state = JobState(row["state"])
    match state:
        case JobState.WAITING | JobState.PENDING:
            reasons = list(_not_running(row)) or [_due(row)]
        case JobState.RUNNING:
            reasons = [_running(row), *_worker_silent(row), *_step_waits(row)]
        case _:
            reasons = list(_ended(row, state))
    return Why(row["id"], row["job_type"], state, reasons)


def _not_running(row: asyncpg.Record) -> Iterator[Reason]:
    """Reasons that need an operator are listed for waiting jobs too: they would apply next."""
    if row["job_type"] is None:
        yield Reason(Code.NO_JOB_TYPE, "It has no job_type. Rows adopted from elsewhere are never run.")
        return
    if row["state"] == JobState.WAITING:
        yield _dependencies(row)
    if row["is_early"]:
        yield _not_due(row)
    if row["attempts"] >= row["quota"]:
        more = "" if row["quota_is_own"] else ", unless its handler registers a higher max_attempts"
        yield Reason(
            Code.ATTEMPTS_USED_UP,
            f"{row['attempts']} of {row['quota']} attempts are used up, so it is not claimed{more}. "
            f"`reactor cancel {row['id']}` and `reactor retry {row['id']}` give it a fresh quota.",
            {"attempts": row["attempts"], "quota": row["quota"]},
        )
    if row["draining"]:
        yield Reason(Code.DRAINING, "Draining is on, so no pod claims jobs. `reactor drain off` turns it off.")
    if row["is_paused"]:
        yield Reason(
            Code.QUEUE_PAUSED,
            f"The queue {row['queue']} is paused. `reactor resume {row['queue']}` resumes it.",
            {"queue": row["queue"]},
        )
    if row["state"] == JobState.PENDING:
        yield from _blocked_by_jobs(row)
    yield from _no_suitable_pod(row)


def _dependencies(row: asyncpg.Record) -> Reason:
    count, named = row["needed_count"], [_json_object(job) for job in row["needed"]]
    if row["is_being_retried"]:
        return Reason(
            Code.RETRYING,
            "It is retried together with other jobs, and starts when all of them can. The pods continue with it.",
        )
    if count == 0:
        return Reason(
            Code.WAITS_FOR_NOTHING,
            "It is waiting although all of its dependencies are met. The pods repair this; if it persists, report it.",
        )
    shown = ", ".join(f"{job['id']} ({job['state']})" for job in named)
    more = f" and {count - len(named)} more" if count > len(named) else ""
    ended = next((job for job in named if JobState(job["state"]).is_terminal), None)
    soon = f" Job {ended['id']} has many dependants; the pods are releasing or cancelling them." if ended else ""
    return Reason(
        Code.DEPENDENCIES,
        f"Waiting for {'job' if count == 1 else 'jobs'} {shown}{more}.{soon}",
        {"jobs": named, "count": count},
    )


def _not_due(row: asyncpg.Record) -> Reason:
    seconds = row["due_in_seconds"]
    if seconds is None:
        return Reason(Code.NOT_DUE, "Not due until its run_after is changed.", {"in_seconds": None})
    at = row["run_after"]
    return Reason(
        Code.NOT_DUE,
        f"Not due until {at:%Y-%m-%d %H:%M:%S %Z}, in {format_duration(seconds)}.",
        {"run_after": at, "in_seconds": seconds},
    )


def _blocked_by_jobs(row: asyncpg.Record) -> Iterator[Reason]:
    """Temporary reasons: they end when other jobs end."""
    for facts in map(_json_object, row["limits"]):
        yield _limited(facts | {"ahead": row["ahead"]})
    if row["holder_id"] is not None:
        yield _scope_busy(row)
    elif row["parked"]:
        ahead = row["ahead_id"]
        turn = f"job {ahead} is next" if ahead else "the pods release it at their next sweep"
        yield Reason(
            Code.SCOPE_TURN,
            f"The scope {row['scope']} is free, but it is not this job's turn: {turn}.",
            {"scope": row["scope"], "ahead_id": ahead},
        )


def _limited(facts: dict[str, Any]) -> Reason:
    named = {"queue": "queue", "job_type": "type", "lane": "lane"}
    who = " and ".join(f"{word} {facts[key]}" for key, word in named.items() if facts[key] is not None)
    place = "" if facts["ahead"] is None else f" {_ahead(facts['ahead'])} in its line."
    if facts["max_running"] is not None and facts["running"] >= facts["max_running"]:
        is_of_queue = facts["job_type"] is None and facts["lane"] is None
        return Reason(
            Code.QUEUE_FULL if is_of_queue else Code.LIMIT_FULL,
            f"The {who} is at its limit: {facts['running']} of {facts['max_running']} jobs running.{place}",
            facts,
        )
    period = format_duration(facts["period_seconds"])
    return Reason(
        Code.RATE_USED_UP,
        f"The {who} is at its rate of {facts['rate']} per {period}; "
        f"the next job may start in {format_duration(facts['opens_in_seconds'] or 0.0)}.{place}",
        facts,
    )


def _ahead(count: int) -> str:
    if count == 0:
        return "This job is the first"
    return f"{count if count < 10_000 else 'At least 10,000'} {'job is' if count == 1 else 'jobs are'} ahead"


def _scope_busy(row: asyncpg.Record) -> Reason:
    is_running = row["holder_state"] == JobState.RUNNING
    holder = "its own earlier run" if row["holder_id"] == row["id"] else f"job {row['holder_id']}"
    if not row["holder_is_alive"]:
        how = f"{holder} holds it, and its worker on {row['holder_pod']} is dead; the next sweep frees the scope"
    elif is_running:
        how = f"{holder} has been running on {row['holder_pod']} for {format_duration(row['holder_seconds'])}"
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


def _no_suitable_pod(row: asyncpg.Record) -> Iterator[Reason]:
    facts = {"job_type": row["job_type"], "queue": row["queue"], "live_pods": row["pods"]}
    if row["pods"] == 0:
        start = f"No pod is alive. Start one that has a handler for {row['job_type']}."
        yield Reason(Code.NO_HANDLER, start + _about_type(row), facts)
        return
    if row["with_handler"] == 0:
        none = "The only live pod has no" if row["pods"] == 1 else f"None of the {row['pods']} live pods has a"
        yield Reason(Code.NO_HANDLER, f"{none} handler for {row['job_type']}.{_about_type(row)}", facts)
    if row["with_queue"] == 0:
        yield Reason(Code.NO_POD_FOR_QUEUE, f"No live pod works on the queue {row['queue']}.", facts)
    elif row["with_handler"] > 0 and row["with_both"] == 0:
        yield Reason(
            Code.NO_POD_FOR_QUEUE,
            f"No live pod both handles {row['job_type']} and works on the queue {row['queue']}: "
            f"{row['with_handler']} of {row['pods']} have the handler.",
            facts,
        )


def _about_type(row: asyncpg.Record) -> str:
    if row["type_unseen_seconds"] is None:
        return did_you_mean(row["job_type"], row["known_types"] or ())
    return f" A pod last had one {format_duration(row['type_unseen_seconds'])} ago."


def _due(row: asyncpg.Record) -> Reason:
    return Reason(
        Code.DUE,
        "Ready; waiting for a free slot. "
        f"{row['with_both']} live pod{'s' if row['with_both'] > 1 else ''} can run it; "
        f"{row['held']} of {row['capacity']} slots are in use{_and_silent(row['silent'])}.",
        {
            "live_pods": row["with_both"],
            "held": row["held"],
            "capacity": row["capacity"],
            "silent_workers": row["silent"],
        },
    )


def _and_silent(count: int) -> str:
    if count == 0:
        return ""
    return f", without those of {count} worker {'process that does' if count == 1 else 'processes that do'} not respond"


def _running(row: asyncpg.Record) -> Reason:
    facts = {
        "pod": row["locked_by"],
        "since": row["locked_at"],
        "for_seconds": row["held_seconds"],
        "attempt": row["attempts"],
        "quota": row["quota"],
        "lease_seconds": row["lease_seconds"],
    }
    age = format_duration(row["held_seconds"])
    where = f"on {row['locked_by']}, attempt {row['attempts']} of {row['quota']}, claimed {age} ago"
    if row["worker_is_alive"]:
        return Reason(
            Code.RUNNING,
            f"Running {where}. Its worker is alive: the lease lasts {format_duration(row['lease_seconds'])} more.",
            facts,
        )
    return Reason(
        Code.WORKER_DEAD,
        f"It was running {where}, but that worker is dead. The next sweep returns it to pending; "
        f"`reactor recover {row['id']}` does so now, with a fresh quota of attempts.",
        facts,
    )


def _step_waits(row: asyncpg.Record) -> Iterator[Reason]:
    if row["worker_is_alive"] and row["next_step"] is not None:
        step = _json_object(row["next_step"])
        yield Reason(
            Code.STEP_WAITS,
            f"None of its steps is running. {step['name']} has failed and runs again in "
            f"{format_duration(step['in_seconds'])}, run {step['run']} of {step['max_attempts']}.",
            step,
        )


def _worker_silent(row: asyncpg.Record) -> Iterator[Reason]:
    """As of the last heartbeat."""
    pid, pod = row["silent_pid"], row["locked_by"]
    if not row["worker_is_alive"] or row["silent_seconds"] is None or pid is None:
        return
    if row["silent_state"] == "stopped":
        how, remedy = "it is stopped (SIGSTOP)", f"`kill -CONT {pid}` on {pod} resumes it"
    else:
        how, remedy = "a handler blocks it", "Wait until the handler returns"
    yield Reason(
        Code.WORKER_SILENT,
        f"Its worker process has not responded for {format_duration(row['silent_seconds'])}: {how}. {remedy}; "
        f"`kill -KILL {pid}` on {pod} ends it, and its jobs run again without being charged.",
        {"pod": pod, "pid": pid, "for_seconds": row["silent_seconds"], "state": row["silent_state"]},
    )


def _ended(row: asyncpg.Record, state: JobState) -> Iterator[Reason]:
    ended = {JobState.COMPLETED: "Completed", JobState.PARTIAL: "Completed in part", JobState.FAILED: "Failed"}
    message = row["error"] or row["status_message"] or ""
    facts = {"finished_at": row["finished_at"], "attempts": row["attempts"], "error": row["error"]}
    if row["broken_by"] is not None:
        facts |= {"broken_by": row["broken_by"], "broken_by_state": row["broken_by_state"]}
        message += f" `reactor retry {row['broken_by']}` also restores this job."
    at = f" at {row['finished_at']:%Y-%m-%d %H:%M:%S %Z}" if row["finished_at"] else ""
    again = f", after attempt {row['attempts']}" if state is JobState.FAILED and row["attempts"] else ""
    yield Reason(
        Code(state.value), f"{ended.get(state, 'Cancelled')}{at}{again}{': ' if message else '.'}{message}", facts
    )
    if row["is_held"]:
        yield Reason(
            Code.HANDLER_NOT_STOPPED,
            f"Its handler on {row['locked_by']} has not stopped yet and holds the scope until it does."
            if row["worker_is_alive"]
            else f"Its worker on {row['locked_by']} is dead; the next sweep frees what it held.",
            {"pod": row["locked_by"], "worker_is_alive": row["worker_is_alive"]},
        )
        yield from _worker_silent(row)


def _json_object(value: Any) -> dict[str, Any]:
    """The decoded object; it is text unless the connection has a codec for jsonb."""
    decoded: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return decoded
