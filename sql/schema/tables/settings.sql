-- Cluster-wide settings: one row.
create table reactor.settings (
    the_only_row boolean primary key default true constraint settings_has_one_row check (the_only_row),
    draining boolean not null default false,
    idempotency_window interval not null default interval '24 hours',
    check_payloads boolean not null default false
);
comment on table reactor.settings is 'Cluster-wide settings; one row.';
comment on column reactor.settings.draining is
    'While true, pods claim no jobs. Running jobs finish; new jobs can be inserted and wait.';
comment on column reactor.settings.idempotency_window is
    'For how long after a job''s creation its idempotency_key refuses a second job.';
comment on column reactor.settings.check_payloads is
    'Whether inserts are refused whose payload does not fit the schema of its job type. Python and HTTP always check.';
insert into reactor.settings default values;
