comment on schema reactor is 'Jobs and pipelines: insert a row into reactor.jobs, and it is run.';

create table reactor.settings (
    the_only_row boolean primary key default true constraint settings_has_one_row check (the_only_row),
    draining boolean not null default false,
    idempotency_window interval not null default interval '24 hours'
);
comment on table reactor.settings is 'What all pods must agree on; one row.';
comment on column reactor.settings.draining is 'While true no job is claimed; running ones end, inserted ones are kept.';
comment on column reactor.settings.idempotency_window is 'How long an idempotency_key keeps a second job away.';
insert into reactor.settings default values;

-- Wide columns first, so that no row has padding. Columns below "engine only" are written by reactor alone.
create table reactor.jobs (
    id bigint generated always as identity primary key,
    changed xid8 not null default pg_current_xact_id(),
    inserted_by xid8 not null default pg_current_xact_id(),
    pipeline_id uuid not null default gen_random_uuid(),
    attempt_id uuid,
    worker_id uuid,
    parent_id bigint,
    broken_by bigint,
    run_after timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    locked_at timestamptz,
    finished_at timestamptz,
    max_attempts reactor.attempt_limit,
    attempts int not null default 0,
    quota int,
    children int not null default 0,
    waiting_on int not null default 0,
    timeout_seconds reactor.duration,
    progress reactor.fraction,
    priority reactor.priority not null default 0,
    exclusive boolean not null default false,
    is_current boolean not null default false,
    parked boolean not null default false,
    state reactor.job_state not null default 'pending',
    queue reactor.label not null default 'default',
    job_type reactor.label,
    scope reactor.key,
    idempotency_key reactor.key,
    locked_by text,
    status_message text,
    error text,
    tags reactor.tags not null default '{}',
    payload reactor.payload not null default '{}',
    result jsonb
) with (
    fillfactor = 90,
    -- Every job leaves several dead row versions behind, and claims walk through them until they are cleared.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

-- Pipelines of one hour then lie together in jobs_pipeline, to which every claim and every end adds an entry.
-- (Before PostgreSQL 18 only reactor.submit does so: our own function as a default would make a lone insert a third slower.)
do $$
begin
    if current_setting('server_version_num')::int >= 180000 then
        alter table reactor.jobs alter pipeline_id set default uuidv7();
    end if;
end
$$;

comment on table reactor.jobs is
    'One row per job. INSERT INTO reactor.jobs (job_type, payload) VALUES (''csv_ingest'', ''{"file": "a.csv"}'') RETURNING id, pipeline_id is all a service needs.';
comment on column reactor.jobs.id is 'given by the database';
comment on column reactor.jobs.changed is 'engine only: the transaction that last changed the row; progress streams resume by it';
comment on column reactor.jobs.inserted_by is 'engine only: the transaction that inserted the row, which alone may make it wait for others';
comment on column reactor.jobs.job_type is 'producer: names the handler; NULL: a row adopted from elsewhere, never run';
comment on column reactor.jobs.payload is 'producer: the handler''s argument, a JSON object';
comment on column reactor.jobs.pipeline_id is 'producer: groups the jobs of one run; random unless given';
comment on column reactor.jobs.parent_id is 'engine only: the job that chained this one';
comment on column reactor.jobs.children is 'engine only: how many jobs this one chained';
comment on column reactor.jobs.queue is 'producer: pods choose which queues they work on';
comment on column reactor.jobs.priority is 'producer: smaller runs first; -1000 to 1000';
comment on column reactor.jobs.run_after is 'producer, and the engine for retries: not before; NULL or past: now';
comment on column reactor.jobs.max_attempts is 'producer: NULL: what the handler registered, else 3';
comment on column reactor.jobs.timeout_seconds is 'producer: NULL: what the handler registered';
comment on column reactor.jobs.tags is 'producer: to find jobs by';
comment on column reactor.jobs.scope is 'producer: what this job computes, e.g. module=3/year=2026; one running job per scope';
comment on column reactor.jobs.exclusive is 'producer: refuse this row while its scope has an unfinished exclusive job';
comment on column reactor.jobs.idempotency_key is 'producer: a second row with this job_type and key is refused within the window';
comment on column reactor.jobs.state is 'engine only: waiting, pending, running, completed, partial, failed or cancelled';
comment on column reactor.jobs.is_current is 'engine only: the newest claimed job of its scope';
comment on column reactor.jobs.attempt_id is 'engine only: the fence; new on every claim, kept on finished rows, NULL after cancel, release, recovery';
comment on column reactor.jobs.attempts is 'engine only: counted at claim, given back if the attempt never began or was released';
comment on column reactor.jobs.quota is 'engine only: how many attempts the newest claim granted in all';
comment on column reactor.jobs.locked_by is 'engine only: the pod of the newest claim';
comment on column reactor.jobs.worker_id is 'engine only: the worker process that may still be running this job''s handler';
comment on column reactor.jobs.locked_at is 'engine only: the time of the newest claim';
comment on column reactor.jobs.progress is 'handler: 0 to 1';
comment on column reactor.jobs.status_message is 'handler: one line for people';
comment on column reactor.jobs.result is 'handler: what it returned';
comment on column reactor.jobs.error is 'engine only: the last error, or why it was cancelled';
comment on column reactor.jobs.created_at is 'given by the database';
comment on column reactor.jobs.started_at is 'engine only: when it was first taken up; stays over retries';
comment on column reactor.jobs.finished_at is 'engine only: when it reached its last state';
comment on column reactor.jobs.waiting_on is 'engine only: how many of its dependencies are not met yet';
comment on column reactor.jobs.broken_by is 'engine only: the job whose end cancelled this one; its retry brings this one back';
comment on column reactor.jobs.parked is 'engine only: pending behind another job of its scope, out of the way of claims';

-- What a claim looks through, in its order. Type before priority: jobs that this pod has no handler for are not passed by.
create index jobs_ready on reactor.jobs (queue, job_type, priority, id)
    where state = 'pending' and run_after is null and not parked and job_type is not null;
-- Scheduled jobs lie here until they are due, however many there are.
create index jobs_future on reactor.jobs (run_after) where state = 'pending' and run_after is not null;
create index jobs_parked on reactor.jobs (scope, queue, job_type, priority, id) where state = 'pending' and parked;
create index jobs_waiting on reactor.jobs (id) where state = 'waiting';
-- What people ask for first, among millions that completed.
create index jobs_not_completed on reactor.jobs (id) where state in ('partial', 'failed', 'cancelled');
create index jobs_pipeline on reactor.jobs (pipeline_id, id);
create index jobs_held on reactor.jobs (worker_id) where worker_id is not null;
-- The referee of "one running job per scope": also held by a cancelled job whose handler has not stopped yet.
create unique index jobs_scope_held on reactor.jobs (scope) where worker_id is not null and scope is not null;
create unique index jobs_scope_current on reactor.jobs (scope) where is_current;
create unique index jobs_scope_exclusive on reactor.jobs (scope)
    where exclusive and state in ('waiting', 'pending', 'running');
create unique index jobs_idempotency on reactor.jobs (job_type, idempotency_key)
    where idempotency_key is not null and state <> 'cancelled';
create index jobs_broken_by on reactor.jobs (broken_by) where broken_by is not null;
create index jobs_times on reactor.jobs using brin (created_at, finished_at);
-- What changed since a given transaction, over all pipelines. xid8 has no BRIN class of its own; a btree would be written
-- twice per job and end HOT updates for progress.
create index jobs_changed on reactor.jobs using brin ((changed::text::bigint)) with (pages_per_range = 16, autosummarize = on);

create table reactor.dependencies (
    job_id bigint not null,
    depends_on bigint not null,
    needs text not null default 'completed'
        constraint needs_is_known check (
            case when needs in ('completed', 'finished') then true
                else reactor.refuse(format('reactor: a dependency can''t need %L', needs),
                    'Use ''completed'' (the default) or ''finished'' (any end will do).') end),
    resolved boolean,
    primary key (job_id, depends_on),
    -- Checked at commit: the triggers look first, and their messages say more.
    constraint dependencies_job_id_fkey foreign key (job_id) references reactor.jobs on delete cascade
        deferrable initially deferred,
    constraint dependencies_depends_on_fkey foreign key (depends_on) references reactor.jobs on delete cascade
        deferrable initially deferred
);
comment on table reactor.dependencies is
    'job_id waits for depends_on. Insert the jobs and these rows in one transaction: a whole DAG appears at once.';
comment on column reactor.dependencies.needs is
    'completed (default): if the other one ends otherwise, this job is cancelled; finished: any end will do';
comment on column reactor.dependencies.resolved is 'engine only: true: the need is met; false: not yet; NULL: just inserted';
create index dependencies_new on reactor.dependencies (job_id) where resolved is null;
create index dependencies_open on reactor.dependencies (depends_on) where not resolved;
-- For deleting a job: the foreign key looks for its resolved edges too.
create index dependencies_depends_on on reactor.dependencies (depends_on);

create table reactor.steps (
    job_id bigint not null references reactor.jobs on delete cascade,
    name text not null,
    position int not null,
    changed xid8 not null default pg_current_xact_id(),
    state text not null default 'pending'
        constraint step_state_is_known check (state in ('pending', 'running', 'completed', 'failed', 'skipped')),
    result jsonb,
    error text,
    started_at timestamptz,
    finished_at timestamptz,
    primary key (job_id, name)
) with (fillfactor = 80);
create index steps_changed on reactor.steps using brin ((changed::text::bigint)) with (pages_per_range = 16, autosummarize = on);
comment on table reactor.steps is 'Units of work inside a job. A completed step is not run again on a retry.';
comment on column reactor.steps.name is 'unique in its job';
comment on column reactor.steps.position is 'the order in which the handler planned them';
comment on column reactor.steps.state is
    'pending (with a started_at: it was interrupted), running, completed, failed or skipped (there was nothing to do, or it is no part of the plan any more)';
comment on column reactor.steps.result is 'what the step returned; a later attempt gets it without running the step';
comment on column reactor.steps.error is 'why it failed, or was skipped';
comment on column reactor.steps.changed is 'the transaction that last changed the row; progress streams resume by it';

create table reactor.attempts (
    job_id bigint not null references reactor.jobs on delete cascade,
    attempt_id uuid not null,
    number int not null,
    pod text,
    started_at timestamptz,
    ended_at timestamptz not null default clock_timestamp(),
    outcome text not null constraint outcome_is_known check (
        outcome in ('error', 'crashed', 'lease_lost', 'released', 'snoozed', 'preempted', 'retried')),
    error text,
    primary key (job_id, attempt_id)
);
comment on table reactor.attempts is
    'Attempts that ended without finishing their job; the job''s own row tells of the one that did.';
comment on column reactor.attempts.outcome is
    'error, crashed (its process died), lease_lost (its pod fell silent), released, snoozed, preempted (cancelled), retried (finished, and started anew by hand)';

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

create table reactor.queues (
    name reactor.label primary key,
    paused boolean not null default false,
    max_running int constraint max_running_is_not_negative check (max_running >= 0)
);
comment on table reactor.queues is 'Optional: a queue without a row here is open and has no limit.';
comment on column reactor.queues.max_running is 'how many of its jobs may run at once, over all pods; NULL: no limit';

create table reactor.schedules (
    name reactor.label primary key,
    job_type reactor.label not null,
    payload reactor.payload not null default '{}',
    queue reactor.label not null default 'default',
    priority reactor.priority not null default 0,
    scope reactor.key,
    exclusive boolean not null default false,
    tags reactor.tags not null default '{}',
    max_attempts reactor.attempt_limit,
    timeout_seconds reactor.duration,
    cron text,
    every interval
        constraint every_is_a_fixed_length_of_time check (
            case when every is null or (every >= interval '1 second' and extract(year from every) = 0 and extract(month from every) = 0)
                then true
                else reactor.refuse(format('reactor: a schedule can''t run every %s', every),
                    'Use a second or more, and days, hours, minutes and seconds; for months and years use cron.') end),
    timezone text not null default 'UTC',
    enabled boolean not null default true,
    catch_up boolean not null default false,
    next_run_at timestamptz
        constraint next_run_is_a_time check (next_run_at >= timestamptz '1970-01-01 UTC' and next_run_at < timestamptz '9000-01-01 UTC'),
    last_run_at timestamptz,
    last_job_id bigint,
    error text,
    created_at timestamptz not null default clock_timestamp(),
    constraint cron_or_every check (
        case when (cron is null) <> (every is null) then true
            else reactor.refuse('reactor: a schedule needs either cron or every', 'Give one of them, and leave the other NULL.') end),
    constraint exclusive_needs_a_scope check (
        case when not exclusive or scope is not null then true
            else reactor.refuse('reactor: the schedule is exclusive and has no scope',
                'Name in scope what must not run twice, or leave exclusive false.') end),
    -- The jobs have one more.
    constraint tags_leave_room check (
        case when cardinality(tags) < 50 and pg_column_size(tags) <= 9000 then true
            else reactor.refuse('reactor: there are too many tags', 'Use at most 49 tags, of 9 kB in all.') end)
);
comment on table reactor.schedules is
    'Recurring jobs, by cron expression or by interval. INSERT INTO reactor.schedules (name, job_type, cron, timezone) VALUES (''nightly'', ''report'', ''0 3 * * *'', ''Europe/Zurich'') is all it takes.';
comment on column reactor.schedules.name is 'its jobs have the tag schedule:NAME';
comment on column reactor.schedules.exclusive is 'skip a tick while an exclusive job of the scope is unfinished';
comment on column reactor.schedules.cron is 'minute hour day month weekday; or six fields, with seconds first; or @daily and the like';
comment on column reactor.schedules.every is 'counted from created_at; a day is 24 hours';
comment on column reactor.schedules.timezone is 'of the cron expression, as in Europe/Zurich';
comment on column reactor.schedules.enabled is 'operators: while false it does not run; ticks of that time are not made up for';
comment on column reactor.schedules.catch_up is 'run once for every tick that was missed, instead of once for all of them';
comment on column reactor.schedules.next_run_at is 'engine, or set by hand for one run at that time; NULL: a pod computes it';
comment on column reactor.schedules.last_run_at is 'engine only: the last tick that was run; none at or before it is run again';
comment on column reactor.schedules.last_job_id is 'engine only: the job of that tick';
comment on column reactor.schedules.error is 'engine only: what is wrong with it; cleared when it is changed';

-- No unique index: a job that was pruned is nobody's any more. Parts are made when they are needed (reactor.open_archive).
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
    'Jobs that reactor prune --archive removed, a part for each month of finished_at (UTC): drop the parts that are no longer needed.';
comment on column reactor.archive.job is 'the whole row of reactor.jobs';
comment on column reactor.archive.steps is 'its rows of reactor.steps, an array; NULL: none';
comment on column reactor.archive.attempts is 'its rows of reactor.attempts, an array; NULL: none';
create index archive_id on reactor.archive (id);
create index archive_pipeline on reactor.archive (pipeline_id);

create table reactor.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    who text not null default session_user,
    what text not null,
    target text,
    came_from text,
    details jsonb not null default '{}'
);
comment on table reactor.audit is 'Operator actions: who, what, when, from where.';
create index audit_at on reactor.audit using brin (at);
