"""Submits jobs unless draining is on, for the HTTP API."""

from collections.abc import Sequence

import asyncpg

from reactor.client.pipeline import Pipeline, SubmittedPipeline, encode_pipeline, new_jobs, submitted_pipeline
from reactor.client.submit import NewJob, Submitted, encode_jobs
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.transact import transact
from reactor.errors import Draining


async def submit_unless_draining(connection: Connection, job: NewJob) -> Submitted:
    """Raises Draining. A job that already exists by its key is returned, so that a repeated request still succeeds."""
    encoded = encode_jobs([job])
    rows = await transact(connection, lambda: connection.fetch(statements.SUBMIT_UNLESS_DRAINING, encoded))
    if rows[0]["draining"]:
        return await _existing(connection, [job])
    return Submitted(*rows[0][1:])


async def submit_pipeline_unless_draining(connection: Connection, pipeline: Pipeline) -> SubmittedPipeline:
    """The same for a pipeline; all of its jobs are submitted or none."""
    encoded = encode_pipeline(pipeline)
    rows = await transact(connection, lambda: connection.fetch(statements.SUBMIT_PIPELINE_UNLESS_DRAINING, encoded))
    if rows[0]["draining"]:
        holder = await _existing(connection, new_jobs(pipeline))
        return SubmittedPipeline(holder.pipeline_id, [], holder.outcome, holder)
    return submitted_pipeline([row[1:] for row in rows])


async def _existing(connection: Connection, jobs: Sequence[NewJob]) -> Submitted:
    keyed = [job for job in jobs if job.idempotency_key is not None]
    found: asyncpg.Record | None = None
    if keyed:
        types, keys = [job.job_type for job in keyed], [job.idempotency_key for job in keyed]
        found = await connection.fetchrow(statements.FIND_KEY_HOLDER, types, keys)
    if found is None:
        raise Draining
    return Submitted(found["id"], found["pipeline_id"], "existing")
