-- Types whose checks run when a value is written, not at every update of its row as a table's checks would.

-- Called by checks on their failing side only, so that the error says what to do and the passing side costs nothing.
create function reactor.refuse(complaint text, remedy text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using message = complaint, hint = remedy, errcode = 'check_violation';
end
$$;
comment on function reactor.refuse is 'Raises check_violation with a message and a hint.';

create domain reactor.payload as jsonb
    constraint payload_is_an_object check (
        case when value is null or jsonb_typeof(value) = 'object' then true
            else reactor.refuse('reactor: the payload is not a JSON object', 'Give an object such as {"file": "a.csv"}.') end)
    constraint payload_is_bounded check (
        case when value is null or pg_column_size(value) <= 1000000 then true
            else reactor.refuse('reactor: the payload is larger than 1 MB',
                'Store the data elsewhere and put its address into the payload.') end);
comment on domain reactor.payload is 'A JSON object of at most 1 MB.';

create domain reactor.label as text
    constraint label_is_readable check (
        case when value is null or (length(value) between 1 and 200 and value !~ '[[:cntrl:]]|^\s|\s$') then true
            else reactor.refuse(format('reactor: %L is no name for a job_type or queue', left(value, 100)),
                'Use 1 to 200 characters, none of them control characters, no space at either end.') end);
comment on domain reactor.label is 'The name of a job type or queue.';

create domain reactor.key as text
    constraint key_is_readable check (
        case when value is null or (length(value) between 1 and 500 and value !~ '[[:cntrl:]]') then true
            else reactor.refuse(format('reactor: %L is no scope or idempotency_key', left(value, 100)),
                'Use 1 to 500 characters, none of them control characters; NULL for none.') end);
comment on domain reactor.key is 'A scope or an idempotency key.';

create domain reactor.priority as smallint
    constraint priority_is_in_range check (
        case when value is null or value between -1000 and 1000 then true
            else reactor.refuse(format('reactor: priority %s is out of range', value),
                'Use -1000 (first) to 1000 (last); 0 is ordinary.') end);
comment on domain reactor.priority is 'Smaller runs first; -1000 to 1000.';

create domain reactor.tags as text[]
    constraint tags_are_bounded check (
        case when value is null or (cardinality(value) <= 50 and pg_column_size(value) <= 10000) then true
            else reactor.refuse('reactor: there are too many tags', 'Use at most 50 tags, of 10 kB in all.') end);
comment on domain reactor.tags is 'At most 50 words to find jobs by.';

create domain reactor.job_state as text
    constraint job_state_is_known check (
        value in ('waiting', 'pending', 'running', 'completed', 'partial', 'failed', 'cancelled'));
comment on domain reactor.job_state is
    'waiting -> pending -> running -> completed, partial, failed or cancelled.';

-- Version 7: begins with the time, so that the rows of one hour lie together in an index. (PostgreSQL 18 has its own.)
create function reactor.time_ordered_uuid() returns uuid
language sql volatile parallel safe
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
        52, 1), 53, 1),
    'hex')::uuid;
comment on function reactor.time_ordered_uuid is 'A random UUID (version 7) that sorts by the time it was made.';
