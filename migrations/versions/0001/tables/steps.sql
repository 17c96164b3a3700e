-- Steps are written through the fence of their job: the writer locks the job's row first.
create table reactor.steps (
    job_id bigint not null references reactor.jobs on delete cascade,
    name text not null,
    position int not null,
    changed_xid bigint not null default txid_current(),
    state text not null default 'pending'
        constraint step_state_is_known check (state in ('pending', 'running', 'completed', 'failed', 'skipped')),
    result jsonb,
    error text,
    started_at timestamptz,
    finished_at timestamptz,
    attempts int not null default 0,
    max_attempts int,
    submitted boolean not null default false,
    run_after timestamptz,
    ran_seconds double precision,
    primary key (job_id, name)
) with (fillfactor = 80);
create index steps_changed on reactor.steps using brin (changed_xid)
    with (pages_per_range = 16, autosummarize = on);
comment on table reactor.steps is 'Units of work inside a job. A completed step is not run again on a retry.';
comment on column reactor.steps.name is 'unique within its job';
comment on column reactor.steps.position is 'the order in which the handler planned them';
comment on column reactor.steps.state is
    'pending (with a started_at: it was interrupted, or failed and will run again), running, completed, failed or '
    'skipped (there was nothing to do, or it is not part of the plan)';
comment on column reactor.steps.attempts is 'how often it has run to an end; interrupted runs don''t count';
comment on column reactor.steps.max_attempts is 'how often it may run; NULL: its handler has not planned it yet';
comment on column reactor.steps.submitted is 'named when the job was submitted';
comment on column reactor.steps.run_after is 'pending: the time of its next run, after one that failed';
comment on column reactor.steps.ran_seconds is 'the duration of these runs together';
comment on column reactor.steps.result is
    'what the step returned; a later attempt receives it without running the step';
comment on column reactor.steps.error is 'why it failed or was skipped, or why its last run failed';
comment on column reactor.steps.changed_xid is
    'engine only: the transaction that last changed the row; streams resume by it';
