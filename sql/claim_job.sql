-- Takes the job $1 for the worker $2 if it can be had now; $3: the attempts that its handler registered. No row: somebody
-- else has it, or it is not due, and nothing has changed.
select
    id, job_type, payload, pipeline_id, parent_id, queue, priority, tags, scope, attempt_id, attempts, quota,
    timeout_seconds, created_at, started_at, locked_at
from reactor.claim_job($1::bigint, $2::uuid, $3::int)
