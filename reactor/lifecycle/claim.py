"""Claims due jobs for a worker, each at most once."""

import json
from collections.abc import Mapping
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

import asyncpg

from reactor.database import statements
from reactor.database.connection import Connection
from reactor.job import Job
from reactor.lifecycle.lease import Worker
from reactor.lifecycle.settle import settle
from reactor.outcome import Ending, Failed

_ORDER = attrgetter("priority", "id")


class Again(Enum):
    """When to claim again, if a claim may have left jobs that are ready."""

    NOW = "again"
    LATER = "later"
    """When other transactions have ended: they have locked something."""
    LIMITED = "limited"
    """When a limit allows more."""


class Claimed(NamedTuple):
    jobs: list[Job]
    again: Again | None
    opens_in: float | None = None
    """In how many seconds a limit allows more."""


async def claim(connection: Connection, worker: Worker, limit: int) -> list[Job]:
    """Up to `limit` jobs that are due, in the order of priority and id. Losing a race to another pod is silent."""
    jobs: list[Job] = []
    again: Again | None = Again.NOW
    while again is Again.NOW and len(jobs) < limit:
        claimed, again, _ = await claim_once(connection, worker, limit - len(jobs))
        jobs += claimed
    return jobs


async def claim_once(
    connection: Connection, worker: Worker, limit: int, marks: str | None = None, free: Mapping[str, int] | None = None
) -> Claimed:
    """A part of them, by a single statement. `marks`: where to start, as reactor.claim takes them. `free`: how many
    jobs of these queues at most; of others, any number."""
    records = await connection.fetch(
        statements.CLAIM,
        worker.id,
        limit,
        list(worker.queues) or None,
        list(worker.job_types),
        list(worker.job_types.values()),
        marks,
        [max(0, free[queue]) if queue in free else None for queue in worker.queues] if free else None,
    )
    again, opens_in = None, None
    if records and records[-1][0] is None:
        last = records.pop()
        again, opens_in = Again(last["job_type"]), last["timeout_seconds"]
    jobs = await _readable(connection, records)
    jobs.sort(key=_ORDER)  # the statement returns them as they lie in the table
    return Claimed(jobs, again, opens_in)


async def _readable(connection: Connection, records: list[asyncpg.Record]) -> list[Job]:
    """The claim is committed by now: a payload that can't be read fails its own job, not the batch."""
    jobs, unreadable = [], []
    for record in records:
        try:
            jobs.append(_job(record))
        except (ValueError, RecursionError) as error:
            failure = Failed(f"The payload can't be read: {error}")
            unreadable.append(Ending(record["id"], record["attempt_id"], failure))
    if unreadable:
        await settle(connection, unreadable)
    return jobs


def _job(record: asyncpg.Record) -> Job:
    identity, job_type, payload, *rest = record
    # A connection may have a codec for jsonb, or not.
    return Job(identity, job_type, json.loads(payload) if isinstance(payload, str) else payload, *rest)


async def claim_one(connection: Connection, worker: Worker, job_id: int, quota: int | None = None) -> Job | None:
    """This job, if it can be claimed now. `quota`: the attempts that its handler registered."""
    record = await connection.fetchrow(statements.CLAIM_JOB, job_id, worker.id, quota)
    return next(iter(await _readable(connection, [record])), None) if record else None


async def claim_job(connection: Connection, worker: Worker, job_id: int, quota: int | None = None) -> bool:
    """Whether the worker has this job now. False: another worker has it or it is not due; nothing has changed."""
    return await claim_one(connection, worker, job_id, quota) is not None


async def inherit(connection: Connection, worker: Worker) -> list[Job]:
    """Jobs that were handed over to this worker before it started."""
    return await _readable(connection, await connection.fetch(statements.HANDED_OVER_JOBS, worker.id))
