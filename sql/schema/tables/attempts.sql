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
