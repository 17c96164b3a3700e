-- All schedules, or the one named $1, each with the state of its latest job.
select s.name, s.job_type, s.payload, s.queue,
    s.priority, s.scope, s.exclusive, s.tags,
    s.max_attempts, s.timeout_seconds, s.cron,
    extract(epoch from s.every)::float8 as every_seconds, s.timezone, s.enabled, s.catch_up, s.next_run_at,
    s.last_run_at, s.last_job_id, j.state as last_job_state, s.error, s.created_at
from reactor.schedules s left join reactor.jobs j on j.id = s.last_job_id
where $1::text is null or s.name = $1
order by s.name
