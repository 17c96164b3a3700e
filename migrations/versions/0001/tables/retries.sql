-- Retries that are not done yet: one handles up to 1,000 jobs in its own transaction, and reactor.retry_more does the
-- rest in transactions of its own (functions/retry.sql). Usually empty.
create table reactor.retries (
    id bigint generated always as identity primary key,
    xid bigint not null default txid_current(),
    accepted_at timestamptz not null,
    not_before timestamptz not null default clock_timestamp()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.retries is 'engine only: retries that are not done yet; usually empty';
comment on column reactor.retries.xid is 'the transaction that began it';
comment on column reactor.retries.accepted_at is 'jobs that ended later are not started over';
comment on column reactor.retries.not_before is
    'when pods continue with it; later than now while its caller does, or if another transaction had locked a job';

create table reactor.retry_parts (
    id bigint generated always as identity primary key,
    retry_id bigint not null references reactor.retries on delete cascade,
    todo text not null constraint todo_is_known check (todo in ('start', 'restore', 'release')),
    tries int not null default 0,
    ids bigint[] not null,
    after_ids bigint[]
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.retry_parts is 'engine only: what is left to do of reactor.retries, in this order';
comment on column reactor.retry_parts.todo is
    'start: these jobs have to start over; restore: jobs that they broke, too; release: those that were started over '
    'are suspended until the others are';
comment on column reactor.retry_parts.tries is 'how often it was put off because other transactions had locked jobs';
comment on column reactor.retry_parts.after_ids is
    'restore: of each job, those that it broke with an id greater than this';
create index retry_parts_retry on reactor.retry_parts (retry_id);
