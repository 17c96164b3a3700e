-- Worker processes and their leases. Half of each page stays free, so that heartbeats are HOT updates.
create table reactor.workers (
    id uuid primary key,
    pod text not null,
    job_types text[] not null,
    queues text[],
    capacity int not null,
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    lease_until timestamptz not null,
    contact_since timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    counts jsonb,
    schema_versions text[]
) with (fillfactor = 50);
comment on table reactor.workers is
    'One row per worker process incarnation: the same pod name after a restart is a new row. '
    'When lease_until has passed, the process is considered dead and its jobs are taken back.';
comment on column reactor.workers.contact_since is
    'the heartbeats of workers have arrived without a long gap since then: see reactor.expire_workers';
comment on column reactor.workers.schema_versions is
    'of each of job_types, the version of what its payloads are checked by (reactor.job_types)';
comment on column reactor.workers.queues is 'NULL: all queues';
comment on column reactor.workers.ended_at is 'when it exited, or was found dead';
comment on column reactor.workers.counts is
    'its counters as of the last heartbeat, or of its exit; docs/observability.md';
-- Live ones, among those that ended within a week. A heartbeat changes no column of it, and remains a HOT update.
create index workers_alive on reactor.workers (id) where ended_at is null;
