-- Writes the schedules that code declares ($1, an array of objects) where they differ from the stored ones. `enabled`
-- is kept: operators decide it. Rows are written by name, so that two pods that start at the same time don't deadlock.
insert into reactor.schedules as s (name, job_type, payload, queue, priority, scope, exclusive, tags, max_attempts,
    timeout_seconds, cron, every, timezone, catch_up)
select d.name, d.job_type, d.payload, d.queue, d.priority, d.scope, d.exclusive, d.tags, d.max_attempts,
    d.timeout_seconds, d.cron, make_interval(secs => d.every_seconds), d.timezone, d.catch_up
from jsonb_to_recordset($1::jsonb) d (name text, job_type text, payload jsonb, queue text, priority int, scope text,
    exclusive boolean, tags text[], max_attempts int, timeout_seconds real, cron text, every_seconds float8,
    timezone text, catch_up boolean)
order by d.name
on conflict (name) do update set job_type = excluded.job_type, payload = excluded.payload, queue = excluded.queue,
    priority = excluded.priority, scope = excluded.scope, exclusive = excluded.exclusive, tags = excluded.tags,
    max_attempts = excluded.max_attempts, timeout_seconds = excluded.timeout_seconds, cron = excluded.cron,
    every = excluded.every, timezone = excluded.timezone, catch_up = excluded.catch_up
where (s.job_type, s.payload, s.queue, s.priority, s.scope, s.exclusive, s.tags, s.max_attempts, s.timeout_seconds,
        s.cron, s.every, s.timezone, s.catch_up)
    is distinct from (excluded.job_type, excluded.payload, excluded.queue, excluded.priority, excluded.scope,
        excluded.exclusive, excluded.tags, excluded.max_attempts, excluded.timeout_seconds, excluded.cron,
        excluded.every, excluded.timezone, excluded.catch_up)
returning s.name
