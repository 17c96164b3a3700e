-- What remains to be done for dependants of jobs that ended: an end handles a limited number of them, and
-- reactor.resolve_more does the rest in transactions of its own (functions/dependencies.sql). Usually empty.
create table reactor.unresolved (
    depends_on bigint not null,
    after_id bigint not null,
    until_id bigint not null,
    not_before timestamptz not null default clock_timestamp(),
    -- Without after_id, which moves: so that moving it is a HOT update.
    primary key (depends_on, until_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.unresolved is
    'engine only: the dependants of ended jobs that still have to be released or cancelled; usually empty';
comment on column reactor.unresolved.depends_on is 'the job that ended';
comment on column reactor.unresolved.after_id is 'its dependants with an id greater than this';
comment on column reactor.unresolved.until_id is 'and not greater than this';
comment on column reactor.unresolved.not_before is
    'when it is tried next; later than now if another transaction had locked the dependant';
create index unresolved_due on reactor.unresolved (not_before);
