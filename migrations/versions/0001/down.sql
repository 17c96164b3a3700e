-- Drops everything that revision 0001 created. The roles stay: they belong to the server, and other databases may use
-- them.
drop view reactor.pipelines, reactor.workload;
drop table
    reactor.audit, reactor.archive, reactor.schedules, reactor.queues, reactor.workers, reactor.attempts, reactor.steps,
    reactor.dependencies, reactor.jobs, reactor.settings;
drop function
    reactor.pipeline_state, reactor.submit, reactor.submit_many, reactor.submit_pipeline, reactor.insert_jobs,
    reactor.chain, reactor.claim, reactor.open_queues, reactor.free_capacity, reactor.take_scopes, reactor.settle,
    reactor.refund, reactor.cancel, reactor.retry, reactor.sweep, reactor.expire_workers, reactor.prune,
    reactor.repair_waiting, reactor.create_archive_partition, reactor.after_jobs_updated, reactor.check_dependencies,
    reactor.connect_dependencies, reactor.first_dependency, reactor.find_cycle, reactor.recompute_dependencies,
    reactor.resolve_dependencies, reactor.lock_predecessors, reactor.free_scopes, reactor.lock_scopes,
    reactor.scope_lock_class, reactor.before_insert, reactor.set_changed, reactor.epoch, reactor.after_limits_changed,
    reactor.before_schedule_changed, reactor.after_schedules_changed, reactor.after_steps_written, reactor.after_insert,
    reactor.first_insert, reactor.notify_feed, reactor.notify_jobs, reactor.notify_once, reactor.time_ordered_uuid;
drop type reactor.claimed;
drop sequence reactor.jobs_notified_at, reactor.feed_notified_at;
drop domain
    reactor.payload, reactor.label, reactor.key, reactor.priority, reactor.attempt_limit, reactor.duration,
    reactor.fraction, reactor.tags, reactor.job_state;
drop function reactor.refuse;
revoke select on reactor.alembic_version from reactor_worker, reactor_producer, reactor_viewer;
revoke usage on schema reactor from reactor_worker, reactor_producer, reactor_viewer;
comment on table reactor.alembic_version is null;
comment on schema reactor is null;
