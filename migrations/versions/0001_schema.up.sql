comment on schema reactor is 'Jobs and pipelines: insert a row into reactor.jobs, and it is run.';
grant usage on schema reactor to reactor_worker, reactor_producer, reactor_viewer;
grant select on reactor.alembic_version to reactor_worker, reactor_producer, reactor_viewer;
