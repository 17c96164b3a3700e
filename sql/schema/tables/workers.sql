create table reactor.workers (
    id uuid primary key,
    pod text not null,
    job_types text[] not null,
    queues text[],
    capacity int not null,
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    lease_until timestamptz not null,
    ended_at timestamptz,
    counts jsonb
) with (fillfactor = 50);
comment on table reactor.workers is
    'One row per worker process incarnation; the same pod name after a restart is another row. Its jobs are dead when lease_until has passed.';
comment on column reactor.workers.queues is 'NULL: all';
comment on column reactor.workers.ended_at is 'when it said goodbye, or was found dead';
comment on column reactor.workers.counts is 'what it had done by its last heartbeat, or its end; docs/observability.md';
