"""Takes due jobs for a worker, each at most once."""

from reactor import statements
from reactor.database import Connection
from reactor.job import Job
from reactor.lease import Worker


async def claim(connection: Connection, worker: Worker, limit: int) -> list[Job]:
    """Up to `limit` jobs that are due, in the order of priority and id. Losing a race to another pod is silent."""
    records = await connection.fetch(
        statements.CLAIM,
        worker.id,
        limit,
        list(worker.queues) or None,
        list(worker.job_types),
        list(worker.job_types.values()),
    )
    return [Job.from_record(record) for record in records]


async def claim_one(connection: Connection, worker: Worker, job_id: int, quota: int | None = None) -> Job | None:
    """This job, if it can be had now. `quota`: the attempts that its handler registered."""
    record = await connection.fetchrow(statements.CLAIM_JOB, job_id, worker.id, quota)
    return None if record is None else Job.from_record(record)


async def claim_job(connection: Connection, worker: Worker, job_id: int, quota: int | None = None) -> bool:
    """Whether this job is ours now. False: somebody else has it or it is not due, and nothing has changed."""
    return await claim_one(connection, worker, job_id, quota) is not None
