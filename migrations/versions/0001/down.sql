-- The roles stay: they belong to the server, and other databases may use them.
drop view reactor.pipelines, reactor.workload;
drop function reactor.pipeline_state, reactor.submit_pipeline, reactor.chain, reactor.submit_many, reactor.place, reactor.submit,
    reactor.retry, reactor.cancel, reactor.sweep, reactor.bury, reactor.prune, reactor.open_archive, reactor.reconcile,
    reactor.claim, reactor.settle, reactor.open_queues, reactor.room,
    reactor.admit;
drop type reactor.claimed;
drop table reactor.audit, reactor.archive, reactor.schedules, reactor.queues, reactor.workers, reactor.attempts, reactor.steps,
    reactor.dependencies, reactor.jobs, reactor.settings;
drop function reactor.after_jobs_updated, reactor.check_dependencies, reactor.connect_dependencies,
    reactor.first_dependency, reactor.find_cycle, reactor.reconsider, reactor.lock_predecessors, reactor.resolve,
    reactor.free_scopes, reactor.lock_scopes, reactor.scope_lock_class, reactor.before_insert, reactor.touch, reactor.epoch,
    reactor.after_gates_changed, reactor.before_schedule_changed, reactor.after_schedules_changed, reactor.after_steps_written, reactor.after_insert, reactor.first_insert, reactor.ring_feed, reactor.ring_jobs,
    reactor.ring, reactor.time_ordered_uuid;
drop sequence reactor.jobs_bell, reactor.feed_bell;
drop domain reactor.payload, reactor.label, reactor.key, reactor.priority, reactor.attempt_limit, reactor.duration,
    reactor.fraction, reactor.tags, reactor.job_state;
drop function reactor.refuse;
revoke select on reactor.alembic_version from reactor_worker, reactor_producer, reactor_viewer;
revoke usage on schema reactor from reactor_worker, reactor_producer, reactor_viewer;
comment on schema reactor is null;
