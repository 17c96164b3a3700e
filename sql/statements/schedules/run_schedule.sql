-- Inserts the jobs of the schedule $1, one for each idempotency key in $2 (NULL: without a key). The key belongs to the
-- tick: a second run of the same tick within the window returns the first job.
select submitted.id, submitted.outcome
from reactor.schedules s
cross join lateral unnest($2::text[]) with ordinality tick (key, place)
cross join lateral reactor.submit(s.job_type, s.payload, queue => s.queue, priority => s.priority,
    max_attempts => s.max_attempts, timeout_seconds => s.timeout_seconds, tags => s.tags || ('schedule:' || s.name),
    scope => s.scope, exclusive => s.exclusive, idempotency_key => tick.key,
    submitted_by => 'schedule ' || s.name) submitted
where s.name = $1::text
order by tick.place
