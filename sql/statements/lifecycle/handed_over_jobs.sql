-- The jobs that the worker $1 holds without having claimed them: they were handed over to it (pod/hand_over.sql). The
-- columns of claim.sql.
select j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue, j.priority,
    j.tags, j.scope, j.attempt_id, j.attempts, j.quota, j.timeout_seconds, j.created_at,
    j.started_at, j.locked_at, j.delivery
from reactor.jobs j
where j.worker_id = $1::uuid and j.state = 'running'
    and j.id in (select unnest(c.job_ids) from reactor.claims c where c.worker_id = $1::uuid)
order by j.priority, j.id
