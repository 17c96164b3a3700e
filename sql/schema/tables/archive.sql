-- Pruned jobs. No unique index: nothing refers to these rows. reactor.create_archive_partition creates partitions on
-- demand.
create table reactor.archive (
    id bigint not null,
    finished_at timestamptz not null,
    pipeline_id uuid not null,
    job_type text,
    state text not null,
    job jsonb not null,
    steps jsonb,
    attempts jsonb
) partition by range (finished_at);
comment on table reactor.archive is
    'Jobs that reactor prune --archive removed, one partition per month of finished_at (UTC). '
    'Drop the partitions that are no longer needed.';
comment on column reactor.archive.job is 'the whole row of reactor.jobs';
comment on column reactor.archive.steps is 'its rows of reactor.steps, as an array; NULL: none';
comment on column reactor.archive.attempts is 'its rows of reactor.attempts, as an array; NULL: none';
create index archive_id on reactor.archive (id);
create index archive_pipeline on reactor.archive (pipeline_id);
