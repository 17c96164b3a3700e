create table reactor.queues (
    name reactor.label primary key,
    paused boolean not null default false,
    max_running int constraint max_running_is_not_negative check (max_running >= 0)
);
comment on table reactor.queues is 'Optional: a queue without a row here is open and has no limit.';
comment on column reactor.queues.max_running is 'how many of its jobs may run at once, over all pods; NULL: no limit';
