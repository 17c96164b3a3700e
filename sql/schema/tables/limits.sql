-- Limits, and what claims remember about them. functions/limits.sql says how they work together.

-- An empty queue or job_type means any. An empty lane limits the queue or type as a whole, * each lane of it on its
-- own, and any other lane that one only, instead of *. Neither max_running nor rate: no limit, for such an exception.
create table reactor.limits (
    queue text not null default '',
    job_type text not null default '',
    lane text not null default '' constraint lane_is_valid check (lane = '' or reactor.check_key(lane)),
    max_running int constraint max_running_is_not_negative check (max_running >= 0),
    rate int constraint rate_is_positive check (rate > 0),
    period interval not null default interval '1 second'
        constraint period_is_valid check (period between interval '1 millisecond' and interval '366 days'),
    burst int constraint burst_is_positive check (burst > 0),
    declared jsonb,
    seen_at timestamptz,
    paced_at timestamptz not null default clock_timestamp(),
    primary key (queue, job_type, lane),
    constraint queue_is_valid check (queue = '' or reactor.check_name(queue)),
    constraint job_type_is_valid check (job_type = '' or reactor.check_name(job_type)),
    constraint queue_or_job_type_is_given check (queue <> '' or job_type <> '')
);
comment on table reactor.limits is
    'How many jobs may run at the same time, or start in a period, over all pods. Empty: no limits.';
comment on column reactor.limits.queue is 'the queue that is limited; empty: any';
comment on column reactor.limits.job_type is 'the job type that is limited; empty: any';
comment on column reactor.limits.lane is
    'empty: all jobs together; *: the jobs of each lane; else: the jobs of this lane, instead of *';
comment on column reactor.limits.max_running is 'the number of jobs that may run at the same time; NULL: any';
comment on column reactor.limits.rate is 'the number of jobs that may start in a period; NULL: any';
comment on column reactor.limits.burst is
    'the number of jobs that may start at once after a pause; NULL: a tenth of a second''s worth, at least 2, '
    'at most rate';
comment on column reactor.limits.declared is
    'engine only: the values that the code declared last; different values were set by an operator';
comment on column reactor.limits.seen_at is 'engine only: when a claim first saw these values';
comment on column reactor.limits.paced_at is 'engine only: when rate, period or burst were set';

-- Rows and not advisory locks, as for scopes: a queue and job type belongs to one of them by its hash.
create table reactor.limit_locks (
    bucket int primary key
);
comment on table reactor.limit_locks is 'engine only: one row per lock of the claims from limited queues and types.';
insert into reactor.limit_locks (bucket) select generate_series(0, 1023);

-- Ready jobs with the same queue, type, priority and lane. The row with an empty lane and priority 0 has only the turn
-- of the jobs without a lane.
create table reactor.lines (
    queue text not null,
    job_type text not null,
    lane text not null,
    priority smallint not null,
    turn timestamptz not null,
    opens_at timestamptz,
    primary key (queue, job_type, lane, priority)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.lines is 'engine only: the lines in which the jobs of lanes are served.';
comment on column reactor.lines.turn is 'when it was served last; the one that has waited longest is next';
comment on column reactor.lines.opens_at is
    'NULL: it may be served; else not before this time, or before a job of the lane ends';
create index lines_open on reactor.lines (queue, job_type, priority, turn) where opens_at is null;
create index lines_closed on reactor.lines (opens_at) where opens_at < 'infinity';

-- News for claims: jobs of a line became ready.
create table reactor.arrivals (
    queue text not null,
    job_type text not null,
    lane text not null,
    priority smallint not null,
    xid bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.arrivals is 'engine only: lines whose jobs became ready, until a claim has read it.';
create index arrivals_line on reactor.arrivals (queue, job_type, lane, priority, xid);
-- Without a primary key, deletes would be refused where logical replication publishes all tables.
alter table reactor.arrivals replica identity full;

-- News for claims: a limit on lanes has a free place (lane *: the limit was changed).
create table reactor.departures (
    queue text not null,
    job_type text not null,
    lane text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.departures is
    'engine only: lanes of limits in which a job ended, until a claim has read it.';
alter table reactor.departures replica identity full;

-- The jobs that workers hold and that a limit counts.
create table reactor.places (
    job_id bigint primary key,
    queue text not null,
    job_type text not null,
    lane text
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.places is 'engine only: running jobs that limits count.';
create index places_queue on reactor.places (queue, job_type, lane);
create index places_type on reactor.places (job_type, lane);

-- The state of rates, by the generic cell rate algorithm: each start moves paid_until by the period divided by the
-- rate, and may not be more than burst of these ahead of the time. A row in the past has no meaning, nor has one of
-- other values of the limit, which had another paced_at: whoever changes a limit writes no row that claims write too.
create table reactor.rates (
    queue text not null,
    job_type text not null,
    lane text not null,
    paced_at timestamptz not null,
    paid_until timestamptz not null,
    primary key (queue, job_type, lane)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table reactor.rates is 'engine only: what limits by rate remember.';
