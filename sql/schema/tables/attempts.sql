-- The history of a job, without the attempt that finished it.
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
    waited_seconds double precision,
    queued_seconds double precision,
    primary key (job_id, attempt_id)
);
comment on table reactor.attempts is
    'Attempts that ended without finishing their job. The job''s own row describes the attempt that finished it.';
comment on column reactor.attempts.outcome is
    'error, crashed (its worker process died), lease_lost (its pod sent no heartbeat), released, snoozed, '
    'preempted (cancelled) or retried (it finished the job, and an operator started the job again)';
comment on column reactor.attempts.waited_seconds is
    'for its dependencies, its run_after or its backoff; NULL: unknown';
comment on column reactor.attempts.queued_seconds is
    'from when it was due to its claim: for a slot, its scope, a limit or a paused queue; NULL: unknown';
