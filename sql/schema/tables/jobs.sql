-- One row per job; each comment says who writes the column. The order of the columns matters twice:
-- - The write-ahead log leaves out what a new version in the same page has in common with the old one at the beginning
--   and at the end. So what never changes comes first and last, and what changes is in the middle.
-- - A column is found by its offset only if no column before it has a variable width or is NULL; else, all of them are
--   walked. Every update compares the columns of all indexes, so these come early. Numbers come by width: no padding.
create table reactor.jobs (
    id bigint generated always as identity primary key,
    inserted_xid bigint not null default txid_current(),
    created_at timestamptz not null default clock_timestamp(),
    pipeline_id uuid not null default gen_random_uuid(),
    changed_xid bigint not null default txid_current(),
    attempts int not null default 0,
    children int not null default 0,
    waiting_on int not null default 0,
    priority smallint not null default 0,
    exclusive boolean not null default false,
    is_current boolean not null default false,
    parked boolean not null default false,
    holds_scope boolean not null default false,
    counted boolean not null default false,
    started_once boolean not null default false,
    phase text not null default 'ready',
    state text not null default 'pending',
    parent_id bigint,
    broken_by bigint,
    run_after timestamptz,
    ready_at timestamptz,
    requeued_at timestamptz,
    locked_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    attempt_id uuid,
    worker_id uuid,
    quota int,
    max_attempts int,
    key_reuse int,
    timeout_seconds real,
    progress real,
    locked_by text,
    status_message text,
    step_counts jsonb,
    error text,
    result jsonb,
    meta jsonb,
    queue text not null default 'default',
    job_type text,
    scope text,
    lane text,
    idempotency_key text,
    created_by text not null default current_user,
    submitted_by text,
    delivery text,
    tags text[] not null default '{}',
    payload jsonb not null default '{}'
) with (
    -- Space for the version that a completion writes. It changes no column of a B-tree index or of a predicate, so with
    -- space in the page it is a HOT update (from PostgreSQL 16 on: before, BRIN indexes prevented that).
    fillfactor = 66,
    -- Every job leaves several dead row versions, and claims walk through them until vacuum removes them.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

-- Time-ordered ids: the pipelines of one hour are then close to each other in jobs_pipeline, to which every claim and
-- every settle adds an entry. (Before PostgreSQL 18 only reactor.submit draws such ids: our own function as a default
-- makes a single insert a third slower.)
do $$
begin
    if current_setting('server_version_num')::int >= 180000 then
        alter table reactor.jobs alter pipeline_id set default uuidv7();
    end if;
end
$$;

-- What EXPLAIN estimates comes from statistics over all rows, also those that a policy hides: none for what producers
-- may not know of each other's jobs.
alter table reactor.jobs alter error set statistics 0, alter status_message set statistics 0,
    alter created_by set statistics 0, alter locked_by set statistics 0, alter meta set statistics 0,
    alter submitted_by set statistics 0, alter step_counts set statistics 0;

comment on table reactor.jobs is
    'One row per job. All that a service needs: INSERT INTO reactor.jobs (job_type, payload) '
    'VALUES (''csv_ingest'', ''{"file": "a.csv"}'') RETURNING id, pipeline_id';
comment on column reactor.jobs.id is 'set by the database';
comment on column reactor.jobs.changed_xid is
    'engine only: the transaction that last changed the row; streams resume by it';
comment on column reactor.jobs.inserted_xid is 
    'engine only: the transaction that inserted the row; only that transaction may insert dependencies of the job';
comment on column reactor.jobs.job_type is
    'producer: selects the handler; NULL: a row adopted from elsewhere, never dispatched';
comment on column reactor.jobs.payload is 'producer: the handler''s argument, a JSON object';
comment on column reactor.jobs.pipeline_id is 'producer: groups the jobs of one run; a new one unless given';
comment on column reactor.jobs.parent_id is 'engine only: the job that chained this one';
comment on column reactor.jobs.children is 'engine only: the number of jobs that this one chained';
comment on column reactor.jobs.queue is 'producer: pods are configured with the queues that they claim from';
comment on column reactor.jobs.priority is 'producer: lower runs first; -1000 to 1000';
comment on column reactor.jobs.run_after is
    'producer, and the engine for retries: do not run before; NULL or past: now';
comment on column reactor.jobs.max_attempts is 'producer: NULL: the handler''s default, else 3';
comment on column reactor.jobs.timeout_seconds is 'producer: NULL: the handler''s default';
comment on column reactor.jobs.tags is 'producer: for searching';
comment on column reactor.jobs.meta is
    'producer, and added to by the handler: facts about the job, a JSON object; NULL: none';
comment on column reactor.jobs.submitted_by is
    'producer: on whose request, e.g. a user''s name; the HTTP API writes the name of the token; NULL: created_by';
comment on column reactor.jobs.delivery is
    'producer: at_least_once, or at_most_once: its handler never starts again once it has started; '
    'NULL: the handler''s default';
comment on column reactor.jobs.started_once is
    'engine only: delivered at most once, and its handler may have started';
comment on column reactor.jobs.scope is 
    'producer: what this job computes, e.g. module=3/year=2026; at most one running job per scope';
comment on column reactor.jobs.lane is
    'producer: on whose behalf, e.g. customer=17; lanes take turns, and limits may apply to each';
comment on column reactor.jobs.exclusive is
    'producer: requires a scope; the row is refused while the scope has an unfinished exclusive job, '
    'or one whose handler has not stopped';
comment on column reactor.jobs.idempotency_key is 
    'producer: within settings.idempotency_window a second row with this job_type and key is refused';
comment on column reactor.jobs.key_reuse is
    'engine only: how often the idempotency_key was used before, outside the window; NULL: never';
comment on column reactor.jobs.state is
    'engine only: waiting, pending, running, completed, partial, failed or cancelled';
comment on column reactor.jobs.is_current is 'engine only: the most recently claimed job of its scope';
comment on column reactor.jobs.attempt_id is 
    'engine only: the fence; new for every claim, kept on terminal rows, NULL after cancel, release or recovery';
comment on column reactor.jobs.attempts is
    'engine only: counted at claim, refunded if the attempt never started or was released';
comment on column reactor.jobs.quota is 'engine only: the number of attempts that the latest claim granted in total';
comment on column reactor.jobs.locked_by is 'engine only: the pod of the latest claim';
comment on column reactor.jobs.worker_id is
    'engine only: the worker process that may still be running this job''s handler';
comment on column reactor.jobs.locked_at is 'engine only: the time of the latest claim';
comment on column reactor.jobs.ready_at is
    'engine only: when it became due for its current attempt, after a run_after or its dependencies; NULL: at once';
comment on column reactor.jobs.requeued_at is
    'engine only: the end of its previous attempt, or its retry; NULL: created_at';
comment on column reactor.jobs.step_counts is
    'engine only: the number of its steps in each state, their total, and as current the step that started last; '
    'NULL: it has no steps';
comment on column reactor.jobs.progress is 'handler: 0 to 1';
comment on column reactor.jobs.status_message is 'handler: one line for humans';
comment on column reactor.jobs.result is 'handler: its return value';
comment on column reactor.jobs.error is 'engine only: the last error, or why the job was cancelled';
comment on column reactor.jobs.created_at is 'set by the database';
comment on column reactor.jobs.created_by is 'set by the database: the role that inserted the job, and may read it';
comment on column reactor.jobs.started_at is 'engine only: the first start of the handler; unchanged by later attempts';
comment on column reactor.jobs.finished_at is 'engine only: when the job reached a terminal state';
comment on column reactor.jobs.waiting_on is 'engine only: the number of its dependencies that are not met yet';
comment on column reactor.jobs.broken_by is 
    'engine only: the job whose end cancelled this one; a retry of that job restores this one';
comment on column reactor.jobs.parked is 'engine only: pending behind another job of its scope; claims do not see it';
comment on column reactor.jobs.holds_scope is 'engine only: has a scope and a worker_id';
comment on column reactor.jobs.counted is
    'engine only: its latest claim got a place in a limit, or kept the one it had (reactor.places)';
comment on column reactor.jobs.phase is
    'engine only: what indexes need to know of the other columns (functions/phase.sql); '
    'running and completed jobs share the phase taken';

-- Predicates name `phase` and not `state`, which changes when a job completes. Every claim evaluates them: what most
-- rows fail comes first.
--
-- What claims walk, in their order. The type comes before the priority, so that a claim never walks past jobs for which
-- its pod has no handler.
create index jobs_ready on reactor.jobs (queue, job_type, priority, id) where lane is null and phase = 'ready';
-- Ready jobs with a lane. Claims look at the first jobs of lines (reactor.lines) that may be served.
create index jobs_lanes on reactor.jobs (queue, job_type, lane, priority, id)
    where lane is not null and phase = 'ready';
create index jobs_scheduled on reactor.jobs (run_after) where phase = 'scheduled';
-- Waiting jobs, and what operators ask for first among millions of completed jobs.
create index jobs_aside on reactor.jobs (phase, id) where phase in ('waiting', 'failed', 'cancelled');
-- The line of each scope: its first job leads, whether it is parked or not.
create index jobs_scope_line on reactor.jobs (scope, queue, job_type, priority, id)
    where scope is not null and phase in ('ready', 'parked');
create index jobs_pipeline on reactor.jobs (pipeline_id, id);
-- Enforces "at most one running job per scope". A cancelled job holds its scope until its handler has stopped.
create unique index jobs_scope_held on reactor.jobs (scope) where holds_scope;
create unique index jobs_scope_current on reactor.jobs (scope) where is_current;
-- A job that was cancelled, or timed out, is in the way of others until its handler has stopped.
create unique index jobs_exclusive_scope_is_busy on reactor.jobs (scope)
    where exclusive and (phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or holds_scope);
-- The window can't be part of an index, so a job after the window has another key_reuse (insert_rules.sql).
-- A cancelled job has released its key. It is in the index too, as one of a kind, so that a query by type and key can
-- use the index without naming the phase.
create unique index jobs_idempotency_key_is_taken on reactor.jobs
    (job_type, idempotency_key, key_reuse nulls first, (case when phase = 'cancelled' then id end))
    nulls not distinct where idempotency_key is not null;
create index jobs_broken_by on reactor.jobs (broken_by, id) where broken_by is not null;
-- What changed since a given transaction, over all pipelines, and what happened since a given time. A B-tree would be
-- written twice per job, and progress updates would not be HOT.
create index jobs_changed on reactor.jobs using brin (changed_xid, created_at, finished_at)
    with (pages_per_range = 16, autosummarize = on);
