-- What handlers log. Lines are inserted under the lock of their job's row (functions/logs.sql), so that of one job they
-- are committed in the order of their ids, and a reader that continues after an id misses none.
--
-- No foreign key: its check for each line would lock the job's row once more, and cost more than the insert. Triggers
-- on jobs remove the lines of deleted jobs instead. No CHECK: only the engine inserts lines.
create table reactor.logs (
    job_id bigint not null,
    id bigint not null generated always as identity,
    at timestamptz not null,
    attempt_id uuid not null,
    attempt int not null,
    number int not null,
    level text not null,
    step text,
    message text not null,
    fields jsonb,
    primary key (job_id, id)
);
comment on table reactor.logs is
    'What handlers log, one row per line, in the order of id within a job. Deleted with the job.';
comment on column reactor.logs.attempt is 'the number of the attempt, as in reactor.jobs.attempts while it ran';
comment on column reactor.logs.number is
    'the position of the line in its attempt, from 1; numbers that are missing were left out';
comment on column reactor.logs.at is
    'when it was logged, by the clock of the database: the time of the insert, minus the age of the line by the clock '
    'of the worker';
comment on column reactor.logs.level is 'debug, info, warning, error or critical';
comment on column reactor.logs.step is 'the step that logged it; NULL: none was running there';
comment on column reactor.logs.fields is
    'the values that were logged with the message, a JSON object, with the traceback as "exception"; NULL: none';
