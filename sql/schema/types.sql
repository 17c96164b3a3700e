-- The columns of a job that a handler needs, as reactor.claim returns them. Not the whole row: at full speed each
-- column counts.
create type reactor.claimed as (
    id bigint, job_type text, payload jsonb, pipeline_id uuid, parent_id bigint, queue text, priority smallint,
    tags text[], scope text, attempt_id uuid, attempts int, quota int, timeout_seconds real, created_at timestamptz,
    started_at timestamptz, locked_at timestamptz, delivery text);

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
