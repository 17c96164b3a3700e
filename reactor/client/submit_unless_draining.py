"""Submits jobs for callers who are to be turned away while the pods drain."""

from collections.abc import Sequence

import asyncpg

from reactor.client.pipeline import Pipeline, SubmittedPipeline, encode_pipeline, new_jobs, submitted_pipeline
from reactor.client.submit import NewJob, Submitted, encode_jobs
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.transact import transact
from reactor.errors import Draining


async def accept(connection: Connection, job: NewJob) -> Submitted:
    """Raises Draining, unless the job is there already: whoever asks again after a lost answer gets that answer."""
    encoded = encode_jobs([job])
    rows = await transact(connection, lambda: connection.fetch(statements.ACCEPT, encoded))
    if rows[0]["draining"]:
        return await _existing(connection, [job])
    return Submitted(*rows[0][1:])


async def accept_pipeline(connection: Connection, pipeline: Pipeline) -> SubmittedPipeline:
    """The same for jobs that depend on each other, all or none."""
    encoded = encode_pipeline(pipeline)
    rows = await transact(connection, lambda: connection.fetch(statements.ACCEPT_PIPELINE, encoded))
    if rows[0]["draining"]:
        holder = await _existing(connection, new_jobs(pipeline))
        return SubmittedPipeline(holder.pipeline_id, [], holder.outcome, holder)
    return submitted_pipeline([row[1:] for row in rows])


async def _existing(connection: Connection, jobs: Sequence[NewJob]) -> Submitted:
    keyed = [job for job in jobs if job.idempotency_key is not None]
    found: asyncpg.Record | None = None
    if keyed:
        types, keys = [job.job_type for job in keyed], [job.idempotency_key for job in keyed]
        found = await connection.fetchrow(statements.KEY_HOLDER, types, keys)
    if found is None:
        raise Draining
    return Submitted(found["id"], found["pipeline_id"], "existing")
