-- For COPY, which PostgreSQL refuses on tables with row-level security: COPY reactor.new_jobs (job_type, payload) FROM
-- STDIN inserts jobs. It has the columns that producers write, and no rows.
create or replace view reactor.new_jobs with (security_invoker) as
select j.job_type, j.payload, j.pipeline_id, j.queue, j.priority, j.run_after, j.max_attempts, j.timeout_seconds,
    j.tags, j.scope, j.exclusive, j.idempotency_key, j.lane, j.meta, j.submitted_by, j.delivery
from reactor.jobs j where false;
comment on view reactor.new_jobs is 'The target of COPY for producers: a row that is written here becomes a job.';

create or replace function reactor.insert_new_job() returns trigger
language plpgsql as $$
begin
    insert into reactor.jobs (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts, timeout_seconds,
        tags, scope, exclusive, idempotency_key, lane, meta, submitted_by, delivery)
    values (new.job_type, coalesce(new.payload, '{}'), coalesce(new.pipeline_id, reactor.time_ordered_uuid()),
        coalesce(new.queue, 'default'), coalesce(new.priority, 0), new.run_after, new.max_attempts,
        new.timeout_seconds, coalesce(new.tags, '{}'), new.scope, coalesce(new.exclusive, false), new.idempotency_key,
        new.lane, new.meta, new.submitted_by, new.delivery);
    return new;
end
$$;

create or replace trigger insert_new_job instead of insert on reactor.new_jobs
    for each row execute function reactor.insert_new_job();
