-- Only queues that are paused or limited need a row.
create table reactor.queues (
    name text primary key constraint name_is_valid check (reactor.check_name(name)),
    paused boolean not null default false,
    max_running int constraint max_running_is_not_negative check (max_running >= 0)
);
comment on table reactor.queues is 'Optional: a queue without a row is not paused and has no limit.';
comment on column reactor.queues.max_running is
    'the number of its jobs that may run at the same time, over all pods; NULL: no limit. '
    'The same as max_running of the limit on the whole queue in reactor.limits';
-- For claims: most rows have a limit only.
create index queues_paused on reactor.queues (name) where paused;
