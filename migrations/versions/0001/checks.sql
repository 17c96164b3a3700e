-- What values may be stored. is_… says whether a value is valid, and is inlined where it is called; check_… returns
-- true or raises check_violation with a remedy. NULL is valid.
--
-- Columns have plain types: drivers don't recognise domains in parameters. And jobs has no CHECK: a table's own checks
-- run at every update of its rows, and are parsed again for each statement (five of them made a single insert a third
-- slower). Triggers call these functions where jobs are inserted, or updated by hand.
comment on schema reactor is 'Jobs and pipelines: insert a row into reactor.jobs, and a pod runs it.';

-- Called only where a check fails, so that the error names a remedy and a passing check costs nothing.
create or replace function reactor.refuse(message text, hint text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using message = refuse.message, hint = refuse.hint, errcode = 'check_violation';
end
$$;
comment on function reactor.refuse is 'Raises check_violation with a message and a hint.';

-- At most 1 MB, measured as text: 1e131000 is short as a number, but not as the text that a handler receives.
create or replace function reactor.is_payload(value jsonb) returns boolean
language sql immutable
return value is null or jsonb_typeof(value) = 'object' and octet_length(value::text) <= 1000000;

create or replace function reactor.check_payload(value jsonb) returns boolean
language sql volatile
return case
    when reactor.is_payload(value) then true
    when jsonb_typeof(value) = 'object' then reactor.refuse('reactor: the payload is larger than 1 MB',
        'Store the data elsewhere and put its address into the payload.')
    else reactor.refuse(format('reactor: the payload is a JSON %s, not an object', jsonb_typeof(value)),
        'Give an object such as {"file": "a.csv"}.'
            || case when value = '[]' then ' PHP encodes an empty array as []: use new stdClass.'
                when jsonb_typeof(value) = 'string' then ' It may have been encoded twice.' else '' end) end;

-- The name of a job type, a queue or a schedule. Limited in bytes: several of these together must fit into one index
-- entry (2,700 bytes).
create or replace function reactor.is_name(value text) returns boolean
language sql immutable
return value is null or octet_length(value) <= 200 and value !~ '[[:cntrl:]]|^[[:space:]]|[[:space:]]$|^$';

create or replace function reactor.check_name(value text) returns boolean
language sql volatile
return case when reactor.is_name(value) then true
    else reactor.refuse(format('reactor: %L is not a valid job_type, queue or schedule name', left(value, 100)),
        'Use 1 to 200 bytes, without control characters and without a space at either end.') end;

create or replace function reactor.is_key(value text) returns boolean
language sql immutable
return value is null or octet_length(value) <= 1000 and value !~ '[[:cntrl:]]|^$';

create or replace function reactor.check_key(value text) returns boolean
language sql volatile
return case when reactor.is_key(value) then true
    else reactor.refuse(format('reactor: %L is not a valid scope or idempotency_key', left(value, 100)),
        'Use 1 to 1000 bytes without control characters, or NULL for none.') end;

-- In reactor.limits, * means each lane.
create or replace function reactor.is_lane(value text) returns boolean
language sql immutable
return value is null or octet_length(value) <= 1000 and value !~ '[[:cntrl:]]|^$' and value <> '*';

create or replace function reactor.check_lane(value text) returns boolean
language sql volatile
return case when reactor.is_lane(value) then true
    else reactor.refuse(format('reactor: %L is not a valid lane', left(value, 100)),
        'Use 1 to 1000 bytes without control characters, not *, or NULL for none.') end;

create or replace function reactor.is_priority(value bigint) returns boolean
language sql immutable
return value is null or value between -1000 and 1000;

create or replace function reactor.check_priority(value bigint) returns boolean
language sql volatile
return case when reactor.is_priority(value) then true
    else reactor.refuse(format('reactor: priority %s is out of range', value),
        'Use -1000 (first) to 1000 (last); the default is 0.') end;

create or replace function reactor.is_max_attempts(value bigint) returns boolean
language sql immutable
return value is null or value between 1 and 2147483647;

create or replace function reactor.check_max_attempts(value bigint) returns boolean
language sql volatile
return case
    when reactor.is_max_attempts(value) then true
    when value < 1 then reactor.refuse('reactor: max_attempts is less than 1',
        'Use 1 for a single attempt, NULL for the default.')
    else reactor.refuse(format('reactor: max_attempts %s is out of range', value), 'Use at most 2147483647.') end;

-- Stored as real, which holds nothing beyond these bounds.
create or replace function reactor.is_timeout(value double precision) returns boolean
language sql immutable
return value is null or value > 1e-37 and value < 3e38;

create or replace function reactor.check_timeout(value double precision) returns boolean
language sql volatile
return case when reactor.is_timeout(value) then true
    else reactor.refuse('reactor: timeout_seconds is not a positive number',
        'Use a positive number of seconds, or NULL for the handler''s own timeout.') end;

-- Measured as text: the size of a column is that of the compressed value.
create or replace function reactor.are_tags(value text[]) returns boolean
language sql immutable
return value is null or cardinality(value) = 0 or array_ndims(value) = 1 and array_position(value, null) is null
    and cardinality(value) <= 50 and octet_length(array_to_string(value, '')) <= 10000;

create or replace function reactor.check_tags(value text[]) returns boolean
language sql volatile
return case
    when reactor.are_tags(value) then true
    when array_ndims(value) > 1 or array_position(value, null) is not null then
        reactor.refuse('reactor: tags must be a plain array of texts', 'Give one dimension, without NULL.')
    else reactor.refuse('reactor: there are too many tags, or they are too long',
        'Use at most 50 tags, 10 kB in total.') end;

create or replace function reactor.is_meta(value jsonb) returns boolean
language sql immutable
return value is null or jsonb_typeof(value) = 'object' and octet_length(value::text) <= 10000;

create or replace function reactor.check_meta(value jsonb) returns boolean
language sql volatile
return case
    when reactor.is_meta(value) then true
    when jsonb_typeof(value) = 'object' then reactor.refuse('reactor: meta is larger than 10 kB',
        'Store the data elsewhere, or in the result.')
    else reactor.refuse(format('reactor: meta is a JSON %s, not an object', jsonb_typeof(value)),
        'Give an object such as {"region": "eu"}.') end;

create or replace function reactor.check_submitted_by(value text) returns boolean
language sql volatile
return case when reactor.is_key(value) then true
    else reactor.refuse(format('reactor: %L is not a valid submitted_by', left(value, 100)),
        'Use 1 to 1000 bytes without control characters, or NULL.') end;

create or replace function reactor.is_delivery(value text) returns boolean
language sql immutable
return value is null or value in ('at_least_once', 'at_most_once');

create or replace function reactor.check_delivery(value text) returns boolean
language sql volatile
return case when reactor.is_delivery(value) then true
    else reactor.refuse(format('reactor: %L is not a valid delivery', left(value, 100)),
        'Use at_least_once or at_most_once, or NULL for the handler''s default.') end;
