-- Recurring jobs. Pods insert the job of each tick (sql/statements/schedules).
create table reactor.schedules (
    name text primary key constraint name_is_valid check (reactor.check_name(name)),
    job_type text not null constraint job_type_is_valid check (reactor.check_name(job_type)),
    payload jsonb not null default '{}' constraint payload_is_valid check (reactor.check_payload(payload)),
    queue text not null default 'default' constraint queue_is_valid check (reactor.check_name(queue)),
    priority smallint not null default 0 constraint priority_is_valid check (reactor.check_priority(priority)),
    scope text constraint scope_is_valid check (reactor.check_key(scope)),
    exclusive boolean not null default false,
    tags text[] not null default '{}' constraint tags_are_valid check (reactor.check_tags(tags)),
    max_attempts int constraint max_attempts_is_valid check (reactor.check_max_attempts(max_attempts)),
    timeout_seconds real constraint timeout_is_valid check (reactor.check_timeout(timeout_seconds)),
    cron text,
    every interval
        constraint every_is_a_fixed_length_of_time check (
            case when every is null
                or (every >= interval '1 second' and extract(year from every) = 0 and extract(month from every) = 0)
                then true
                else reactor.refuse(format('reactor: a schedule can''t run every %s', every),
                    'Use at least one second, in days, hours, minutes and seconds; use cron for months and years.')
                end),
    timezone text not null default 'UTC',
    enabled boolean not null default true,
    catch_up boolean not null default false,
    next_run_at timestamptz
        constraint next_run_is_a_time check (next_run_at >= timestamptz '1970-01-01 UTC'
            and next_run_at < timestamptz '9000-01-01 UTC'),
    last_run_at timestamptz,
    last_job_id bigint,
    error text,
    created_at timestamptz not null default clock_timestamp(),
    constraint cron_or_every check (
        case when (cron is null) <> (every is null) then true
            else reactor.refuse('reactor: a schedule needs either cron or every',
                'Set one of them and leave the other NULL.') end),
    constraint exclusive_needs_a_scope check (
        case when not exclusive or scope is not null then true
            else reactor.refuse('reactor: the schedule is exclusive and has no scope',
                'Set scope to what must not run twice, or leave exclusive false.') end),
    -- Its jobs get one more: schedule:NAME.
    constraint tags_leave_room check (
        case when cardinality(tags) < 50 and octet_length(array_to_string(tags, '')) <= 9000 then true
            else reactor.refuse('reactor: there are too many tags', 'Use at most 49 tags, 9 kB in total.') end)
);
comment on table reactor.schedules is
    'Recurring jobs, by cron expression or by interval. INSERT INTO reactor.schedules (name, job_type, cron, timezone) '
    'VALUES (''nightly'', ''report'', ''0 3 * * *'', ''Europe/Zurich'')';
comment on column reactor.schedules.name is 'its jobs have the tag schedule:NAME';
comment on column reactor.schedules.exclusive is 'skip a tick while the scope has an unfinished exclusive job';
comment on column reactor.schedules.cron is
    'minute hour day month weekday; or six fields, seconds first; or @daily and the like';
comment on column reactor.schedules.every is 'counted from created_at; a day is 24 hours';
comment on column reactor.schedules.timezone is 'of the cron expression, such as Europe/Zurich';
comment on column reactor.schedules.enabled is
    'operators: while false it does not run; the ticks of that time are skipped';
comment on column reactor.schedules.catch_up is 'run once for every missed tick instead of once for all of them';
comment on column reactor.schedules.next_run_at is
    'engine, or set by an operator for one run at that time; NULL: a pod computes it';
comment on column reactor.schedules.last_run_at is
    'engine only: the last tick that ran; no tick at or before it runs again';
comment on column reactor.schedules.last_job_id is 'engine only: the job of that tick';
comment on column reactor.schedules.error is 'engine only: why it can''t run; cleared when the row is changed';
