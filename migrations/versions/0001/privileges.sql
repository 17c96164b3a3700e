-- Who may do what. Can be run again: functions are executable only by the roles named here.
revoke all on all functions in schema reactor from public;
revoke all on all tables in schema reactor from public;
grant usage on schema reactor to reactor_worker, reactor_producer, reactor_viewer;
grant select on reactor.alembic_version to reactor_worker, reactor_producer, reactor_viewer;

-- Checks and the conditions of triggers run as the user who writes the row.
grant execute on function reactor.refuse, reactor.first_insert, reactor.first_dependency
    to reactor_producer, reactor_worker;

-- Producers insert jobs and follow them by id; they see no payloads, results or errors.
grant insert (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts, timeout_seconds, tags, scope,
    exclusive, idempotency_key) on reactor.jobs to reactor_producer;
grant select (id, pipeline_id, job_type, scope, idempotency_key, state) on reactor.jobs to reactor_producer;
grant insert (job_id, depends_on, needs) on reactor.dependencies to reactor_producer;
grant execute on function reactor.submit, reactor.submit_many, reactor.submit_pipeline to reactor_producer;

grant select, update, delete on reactor.jobs to reactor_worker;
-- Without `changed` and `inserted_by`, which only the columns' defaults may set.
grant insert (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts, timeout_seconds, tags, scope,
    exclusive, idempotency_key, parent_id) on reactor.jobs to reactor_worker;
grant select, insert (job_id, depends_on, needs), update (resolved) on reactor.dependencies to reactor_worker;
grant select, insert, update, delete on reactor.steps, reactor.attempts, reactor.workers, reactor.queues,
    reactor.schedules to reactor_worker;
grant select, update on reactor.settings to reactor_worker;
grant select, insert on reactor.audit, reactor.archive to reactor_worker;
grant execute on function
    reactor.submit, reactor.submit_many, reactor.submit_pipeline, reactor.insert_jobs, reactor.chain,
    reactor.claim, reactor.open_queues, reactor.free_capacity, reactor.take_scopes, reactor.settle, reactor.refund,
    reactor.scope_lock_class, reactor.lock_scopes, reactor.free_scopes, reactor.notify_jobs,
    reactor.lock_predecessors, reactor.recompute_dependencies, reactor.resolve_dependencies,
    reactor.cancel, reactor.retry, reactor.expire_workers, reactor.sweep, reactor.repair_waiting,
    reactor.prune, reactor.create_archive_partition
    to reactor_worker;

grant select on all tables in schema reactor to reactor_viewer;
grant select on reactor.pipelines, reactor.workload to reactor_worker;
grant execute on function reactor.pipeline_state, reactor.epoch to reactor_worker, reactor_viewer;
