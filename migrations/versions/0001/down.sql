-- The roles stay: they belong to the server, and other databases may use them.
drop function reactor.submit, reactor.submit_many, reactor.retry, reactor.reconcile, reactor.claim, reactor.open_queues,
    reactor.claimant, reactor.admit;
drop type reactor.claimed;
drop table reactor.audit, reactor.schedules, reactor.queues, reactor.workers, reactor.attempts, reactor.steps,
    reactor.dependencies, reactor.jobs, reactor.settings;
drop function reactor.after_jobs_updated, reactor.after_dependencies_inserted, reactor.find_cycle, reactor.reconsider,
    reactor.resolve, reactor.free_scopes, reactor.scope_lock_class, reactor.release_expired_key, reactor.due_already,
    reactor.touch, reactor.ring_feed, reactor.ring_jobs, reactor.time_ordered_uuid;
drop sequence reactor.jobs_bell, reactor.feed_bell;
drop domain reactor.payload, reactor.label, reactor.key, reactor.priority, reactor.tags, reactor.job_state;
drop function reactor.refuse;
revoke select on reactor.alembic_version from reactor_worker, reactor_producer, reactor_viewer;
revoke usage on schema reactor from reactor_worker, reactor_producer, reactor_viewer;
comment on schema reactor is null;
