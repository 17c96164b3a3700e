-- What worker processes have handlers for, as they published it when they started (sql/statements/handlers).
--
-- Two versions of an application run side by side while it is deployed. The row describes the one that was published
-- last. The schemas of others are kept in `earlier_schemas` for as long as a live worker process has them.
create table reactor.job_types (
    name text primary key constraint name_is_valid check (reactor.check_name(name)),
    queue text,
    max_attempts int,
    timeout_seconds double precision,
    delivery text not null,
    description text,
    payload_schema jsonb,
    is_checked boolean not null,
    version text not null,
    earlier_schemas jsonb not null default '{}',
    published_at timestamptz not null default clock_timestamp(),
    last_seen_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table reactor.job_types is
    'One row per job type that worker processes have a handler for, or had within the last 30 days.';
comment on column reactor.job_types.queue is
    'the queue that its worker processes work on, if it is a single one; NULL: all or several';
comment on column reactor.job_types.max_attempts is 'the handler''s default; NULL: 3';
comment on column reactor.job_types.timeout_seconds is 'the handler''s default; NULL: no timeout';
comment on column reactor.job_types.delivery is 'the handler''s default';
comment on column reactor.job_types.description is 'the first line of the handler''s docstring';
comment on column reactor.job_types.payload_schema is
    'JSON Schema of the payload, from the handler''s model; NULL: it has none';
comment on column reactor.job_types.is_checked is 'payloads are checked by the schema';
comment on column reactor.job_types.version is 'engine only: identifies what payloads are checked by';
comment on column reactor.job_types.earlier_schemas is
    'engine only: by version, what payloads were checked by before; they count while a live worker process has them';
comment on column reactor.job_types.published_at is 'when a worker process last published something else than before';
comment on column reactor.job_types.last_seen_at is
    'when a live worker process last had a handler for it; up to two minutes old';
