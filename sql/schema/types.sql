-- Domains, and what their checks need. A domain's check runs when a value is written; a table's own checks run at every
-- update of its rows and are parsed again for each statement: five of them made a single insert a third slower.
comment on schema reactor is 'Jobs and pipelines: insert a row into reactor.jobs, and a pod runs it.';

-- Called only where a check fails, so that the error names a remedy and a passing check costs nothing.
create or replace function reactor.refuse(message text, hint text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using message = refuse.message, hint = refuse.hint, errcode = 'check_violation';
end
$$;
comment on function reactor.refuse is 'Raises check_violation with a message and a hint.';

create domain reactor.payload as jsonb
    constraint payload_is_an_object check (
        case when value is null or jsonb_typeof(value) = 'object' then true
            else reactor.refuse('reactor: the payload is not a JSON object',
                'Give an object such as {"file": "a.csv"}.') end)
    -- Measured as text: 1e131000 is short as a number, but not as the text that a handler receives.
    constraint payload_is_bounded check (
        case when value is null or octet_length(value::text) <= 1000000 then true
            else reactor.refuse('reactor: the payload is larger than 1 MB',
                'Store the data elsewhere and put its address into the payload.') end);
comment on domain reactor.payload is 'A JSON object of at most 1 MB.';

-- Limited in bytes: several of these together must fit into one index entry (2,700 bytes).
create domain reactor.label as text
    constraint label_is_readable check (
        case when value is null or (octet_length(value) between 1 and 200 and value !~ '[[:cntrl:]]|^\s|\s$') then true
            else reactor.refuse(format('reactor: %L is not a valid job_type, queue or schedule name', left(value, 100)),
                'Use 1 to 200 bytes, without control characters and without a space at either end.') end);
comment on domain reactor.label is 'The name of a job type, a queue or a schedule.';

create domain reactor.key as text
    constraint key_is_readable check (
        case when value is null or (octet_length(value) between 1 and 1000 and value !~ '[[:cntrl:]]') then true
            else reactor.refuse(format('reactor: %L is not a valid scope or idempotency_key', left(value, 100)),
                'Use 1 to 1000 bytes without control characters, or NULL for none.') end);
comment on domain reactor.key is 'A scope or an idempotency key.';

create domain reactor.priority as smallint
    constraint priority_is_in_range check (
        case when value is null or value between -1000 and 1000 then true
            else reactor.refuse(format('reactor: priority %s is out of range', value),
                'Use -1000 (first) to 1000 (last); the default is 0.') end);
comment on domain reactor.priority is '-1000 (runs first) to 1000 (runs last).';

create domain reactor.attempt_limit as int
    constraint attempt_limit_is_positive check (
        case when value is null or value >= 1 then true
            else reactor.refuse('reactor: max_attempts is less than 1',
                'Use 1 for a single attempt, NULL for the default.') end);
comment on domain reactor.attempt_limit is 'The number of attempts that a job may use: 1 or more.';

create domain reactor.duration as real
    constraint duration_is_positive check (
        case when value is null or (value > 0 and value < 'infinity') then true
            else reactor.refuse('reactor: timeout_seconds is not a positive number',
                'Use a positive number of seconds, or NULL for the handler''s own timeout.') end);
comment on domain reactor.duration is 'A positive number of seconds.';

create domain reactor.fraction as real
    constraint fraction_is_between_0_and_1 check (
        case when value is null or value between 0 and 1 then true
            else reactor.refuse(format('reactor: progress %s is out of range', value),
                'Use 0 (nothing done) to 1 (all done).') end);
comment on domain reactor.fraction is 'A number from 0 to 1.';

create domain reactor.tags as text[]
    constraint tags_are_bounded check (
        case when value is null or (cardinality(value) <= 50 and pg_column_size(value) <= 10000) then true
            else reactor.refuse('reactor: there are too many tags', 'Use at most 50 tags, 10 kB in total.') end)
    constraint tags_are_words check (
        case when coalesce(array_ndims(value), 1) = 1 and array_position(value, null) is null then true
            else reactor.refuse('reactor: tags must be a plain array of texts',
                'Give one dimension, without NULL.') end);
comment on domain reactor.tags is 'At most 50 words for finding jobs.';

create domain reactor.job_state as text
    constraint job_state_is_known check (
        value in ('waiting', 'pending', 'running', 'completed', 'partial', 'failed', 'cancelled'));
comment on domain reactor.job_state is
    'waiting -> pending -> running -> completed, partial, failed or cancelled.';

-- The columns of a job that a handler needs, as reactor.claim returns them. Not the whole row: at full speed each
-- column counts. Plain types: a driver has to look up a domain on each new connection.
create type reactor.claimed as (
    id bigint, job_type text, payload jsonb, pipeline_id uuid, parent_id bigint, queue text, priority smallint,
    tags text[], scope text, attempt_id uuid, attempts int, quota int, timeout_seconds real, created_at timestamptz,
    started_at timestamptz, locked_at timestamptz);

-- Version 7: begins with the time, so that rows of one hour are close to each other in an index. (PostgreSQL 18 has its
-- own.)
create or replace function reactor.time_ordered_uuid() returns uuid
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
        52, 1), 53, 1),
    'hex')::uuid;
comment on function reactor.time_ordered_uuid is 'A random UUID (version 7) that sorts by its creation time.';
