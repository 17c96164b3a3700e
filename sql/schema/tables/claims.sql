-- Which jobs each worker may hold. An index on worker_id would be written twice per job.
create table reactor.claims (
    worker_id uuid not null,
    id bigint generated always as identity,
    job_ids bigint[] not null,
    primary key (worker_id, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table reactor.claims is
    'engine only: the jobs of each claim. Those whose worker_id is still the claim''s are held, and no others are held '
    'by anyone. Rows without such jobs are deleted later.';
