-- What every producer may know of every job: enough to follow a job by its id, and to see what holds a key or a scope.
create or replace view reactor.job_states as
select j.id, j.pipeline_id, j.job_type, j.scope, j.idempotency_key, j.state from reactor.jobs j;
comment on view reactor.job_states is
    'The states of all jobs, for producers, who see only their own rows of reactor.jobs.';
