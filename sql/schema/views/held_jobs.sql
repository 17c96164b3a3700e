-- The jobs that workers hold: running ones, and cancelled ones whose handlers have not stopped.
create or replace view reactor.held_jobs as
select j.* from reactor.jobs j
where j.worker_id is not null and j.id in (select unnest(c.job_ids) from reactor.claims c);
comment on view reactor.held_jobs is 'The jobs that a worker process may still be running.';
