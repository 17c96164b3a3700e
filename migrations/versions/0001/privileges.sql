-- Who may do what. Functions are nobody's unless granted.
revoke all on all functions in schema reactor from public;
revoke all on all tables in schema reactor from public;
grant usage on schema reactor to reactor_worker, reactor_producer, reactor_viewer;
grant select on reactor.alembic_version to reactor_worker, reactor_producer, reactor_viewer;

-- Checks and defaults run as whoever writes the row.
grant execute on function reactor.refuse, reactor.time_ordered_uuid to reactor_producer, reactor_worker;

-- Producers insert, and look after their own jobs by id; they see no payloads, results or errors.
grant insert (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts, timeout_seconds, tags, scope,
    exclusive, idempotency_key) on reactor.jobs to reactor_producer;
grant select (id, pipeline_id, job_type, scope, idempotency_key, state) on reactor.jobs to reactor_producer;
grant insert (job_id, depends_on, needs) on reactor.dependencies to reactor_producer;
grant execute on function reactor.submit, reactor.submit_many to reactor_producer;

grant select, insert, update, delete on reactor.jobs, reactor.steps, reactor.attempts, reactor.workers, reactor.queues,
    reactor.schedules to reactor_worker;
grant select, insert (job_id, depends_on, needs) on reactor.dependencies to reactor_worker;
grant select, update on reactor.settings to reactor_worker;
grant select, insert on reactor.audit to reactor_worker;
grant execute on all functions in schema reactor to reactor_worker;
revoke execute on function reactor.ring_jobs, reactor.ring_feed, reactor.release_expired_key,
    reactor.after_dependencies_inserted, reactor.after_jobs_updated from reactor_worker;

grant select on all tables in schema reactor to reactor_viewer;
