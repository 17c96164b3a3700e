-- Takes up to $2 due jobs for the worker $1: queues $3 (NULL: all), types $4 with the attempts $5 that their handlers
-- registered (NULL: 3). Only what a handler needs to know comes back: at full speed the bytes count.
select
    id, job_type, payload, pipeline_id, parent_id, queue, priority, tags, scope, attempt_id, attempts, quota,
    timeout_seconds, created_at, started_at, locked_at
from reactor.claim($1::uuid, $2::int, $3::text[], $4::text[], $5::int[])
