-- What live worker processes can run. Producers may read it, to know whether a job would wait for a pod.
create or replace view reactor.live_workers as
select w.job_types, w.queues, w.schema_versions from reactor.workers w
where w.ended_at is null and w.lease_until > clock_timestamp();
comment on view reactor.live_workers is
    'The job types and queues (NULL: all) of each live worker process, and the versions of the types'' schemas.';
