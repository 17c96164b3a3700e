"""Submits jobs unless draining is on, for the HTTP API."""

from collections.abc import Sequence

import asyncpg

from reactor.client.drivers import Rows
from reactor.client.pipeline import Pipeline, SubmittedPipeline, encode_pipeline, new_jobs, submitted_pipeline
from reactor.client.submit import NewJob, encode_jobs, first_submitted
from reactor.client.submitted import Submitted
from reactor.database import statements
from reactor.database.connection import Connection
from reactor.database.transact import transact
from reactor.errors import Draining


async def submit_unless_draining(connection: Connection, job: NewJob) -> Submitted:
    """Raises Draining. A job that already exists by its key is returned, so that a repeated request still succeeds."""
    rows = await _submit(connection, encode_jobs([job]), as_pipeline=False)
    return await _existing(connection, [job]) if rows is None else first_submitted(rows, job)


async def submit_pipeline_unless_draining(connection: Connection, pipeline: Pipeline) -> SubmittedPipeline:
    """The same for a pipeline; all of its jobs are submitted or none."""
    rows = await _submit(connection, encode_pipeline(pipeline), as_pipeline=True)
    if rows is None:
        holder = await _existing(connection, new_jobs(pipeline))
        return SubmittedPipeline(holder.pipeline_id, [], holder.outcome, holder)
    return submitted_pipeline(rows, pipeline)


async def _submit(connection: Connection, encoded: str, *, as_pipeline: bool) -> Rows | None:
    """None: draining is on."""
    rows = await transact(connection, lambda: connection.fetch(statements.SUBMIT_UNLESS_DRAINING, encoded, as_pipeline))
    return None if rows[0]["draining"] else [row[1:] for row in rows]


async def _existing(connection: Connection, jobs: Sequence[NewJob]) -> Submitted:
    keyed = [job for job in jobs if job.idempotency_key is not None]
    found: asyncpg.Record | None = None
    if keyed:
        types, keys = [job.job_type for job in keyed], [job.idempotency_key for job in keyed]
        found = await connection.fetchrow(statements.FIND_KEY_HOLDER, types, keys)
    if found is None:
        raise Draining
    return Submitted(found["id"], found["pipeline_id"], "existing")
