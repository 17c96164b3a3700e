revoke select on reactor.alembic_version from reactor_worker, reactor_producer, reactor_viewer;
revoke usage on schema reactor from reactor_worker, reactor_producer, reactor_viewer;
comment on schema reactor is null;
