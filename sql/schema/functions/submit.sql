-- For producers: inserts a job in one call, without error handling. Numbers have the widest types that drivers send.
-- These functions run as their caller, who becomes the creator of the jobs.

-- What a producer can't see: the jobs of others.
create or replace function reactor.find_exclusive(scope text, out id bigint, out pipeline_id uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select j.id, j.pipeline_id into id, pipeline_id from reactor.jobs j
    where j.scope = find_exclusive.scope and j.exclusive
        and (j.phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or j.holds_scope);
end
$$;
comment on function reactor.find_exclusive is 'The exclusive job that holds a scope, or NULL.';

create or replace function reactor.find_key_holder(
    job_type text, idempotency_key text, out id bigint, out pipeline_id uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select j.id, j.pipeline_id into id, pipeline_id from reactor.jobs j
    where j.job_type = find_key_holder.job_type and j.idempotency_key = find_key_holder.idempotency_key
        and j.phase <> 'cancelled'
    order by j.key_reuse desc nulls last limit 1;
end
$$;
comment on function reactor.find_key_holder is 'The job that holds an idempotency key, or NULL.';

-- Jobs that a handler submits in the transaction of its attempt are children of its job, which its worker names in
-- `reactor.parent`. Who may not write a job's parent_id can set it too, and it is ignored (insert_rules.sql).
create or replace function reactor.parent() returns bigint
language sql stable
return nullif(current_setting('reactor.parent', true), '')::bigint;
comment on function reactor.parent is 'The job whose attempt this transaction belongs to, or NULL.';

-- For reactor.settle, at the end of the transaction. A savepoint that is rolled back takes its children with it. The
-- transaction is noted, too: behind a pooler, a setting may be someone else's.
create or replace function reactor.count_children(created bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    setting text;
begin
    setting := set_config('reactor.children',
        txid_current() || ' ' || coalesce(reactor.submitted_children(), 0) + created, true);
end
$$;
comment on function reactor.count_children is 'Adds to the number of children that this transaction submitted.';

create or replace function reactor.submitted_children() returns int
language sql volatile
return case when split_part(current_setting('reactor.children', true), ' ', 1) = txid_current()::text
    then split_part(current_setting('reactor.children', true), ' ', 2)::int end;
comment on function reactor.submitted_children is
    'How many children a handler has submitted in this transaction; NULL: none.';

create or replace function reactor.submit(
    job_type text,
    payload jsonb default '{}',
    out id bigint,
    inout pipeline_id uuid default null,
    out outcome text,
    queue text default 'default',
    priority bigint default 0,
    run_after timestamptz default null,
    max_attempts bigint default null,
    timeout_seconds double precision default null,
    tags text[] default '{}',
    scope text default null,
    exclusive boolean default false,
    idempotency_key text default null,
    lane text default null,
    meta jsonb default null,
    submitted_by text default null,
    delivery text default null,
    steps text[] default null)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    job record;
begin
    if submit.job_type is null then
        perform reactor.refuse('reactor: the job has no job_type', 'Set job_type to the name of the handler.');
    end if;
    -- The trigger checks the rest. These are checked before they are converted to the columns' types.
    if not (reactor.is_priority(submit.priority) and reactor.is_max_attempts(submit.max_attempts)
        and reactor.is_timeout(submit.timeout_seconds))
    then
        perform reactor.check_priority(submit.priority), reactor.check_max_attempts(submit.max_attempts),
            reactor.check_timeout(submit.timeout_seconds);
    end if;
    -- The conflicting job may have ended before it is read; then the insert is tried again.
    for try in 1 .. 10 loop
        insert into reactor.jobs as j (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts,
            timeout_seconds, tags, scope, exclusive, idempotency_key, lane, meta, submitted_by, delivery,
            parent_id)
        values (submit.job_type, coalesce(submit.payload, '{}'),
            coalesce(submit.pipeline_id, reactor.time_ordered_uuid()), coalesce(submit.queue, 'default'),
            coalesce(submit.priority, 0), submit.run_after, submit.max_attempts, submit.timeout_seconds,
            coalesce(submit.tags, '{}'), submit.scope, coalesce(submit.exclusive, false), submit.idempotency_key,
            submit.lane, submit.meta, submit.submitted_by, submit.delivery, reactor.parent())
        on conflict do nothing
        returning j.id, j.pipeline_id, 'created' as outcome, j.parent_id into job;
        if job.parent_id is not null then
            perform reactor.count_children(1);
        end if;
        if not found and submit.idempotency_key is not null then
            select h.id, h.pipeline_id, 'existing' as outcome into job
            from reactor.find_key_holder(submit.job_type, submit.idempotency_key) h where h.id is not null;
        end if;
        if not found and submit.exclusive then
            select h.id, h.pipeline_id, 'busy' as outcome into job from reactor.find_exclusive(submit.scope) h
            where h.id is not null;
        end if;
        if found then
            id := job.id;
            pipeline_id := job.pipeline_id;
            outcome := job.outcome;
            if steps is not null and outcome = 'created' then
                perform reactor.add_steps(submit.id, steps);
            end if;
            return;
        end if;
    end loop;
    raise exception 'reactor: this transaction can''t see the job that conflicts with the new one'
        using errcode = 'serialization_failure', hint = 'Run the transaction again.';
end
$$;
comment on function reactor.submit(text, jsonb, uuid, text, bigint, timestamptz, bigint, double precision, text[], text,
    boolean, text, text, jsonb, text, text, text[]) is
    'Inserts a job. outcome: created; existing (id is the holder of the idempotency_key); '
    'busy (id is the job that holds the exclusive scope).';

-- For drivers that send JSON parameters as json. Its job_type is a varchar and its payload has no default, so that
-- PostgreSQL prefers the function above wherever the type of the payload is unknown: in literals, and in parameters
-- whose types a driver leaves to the server.
create or replace function reactor.submit(
    job_type varchar,
    payload json,
    out id bigint,
    inout pipeline_id uuid default null,
    out outcome text,
    queue text default 'default',
    priority bigint default 0,
    run_after timestamptz default null,
    max_attempts bigint default null,
    timeout_seconds double precision default null,
    tags text[] default '{}',
    scope text default null,
    exclusive boolean default false,
    idempotency_key text default null,
    lane text default null,
    meta json default null,
    submitted_by text default null,
    delivery text default null,
    steps text[] default null)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    select s.id, s.pipeline_id, s.outcome into id, pipeline_id, outcome
    from reactor.submit(submit.job_type::text, submit.payload::jsonb, submit.pipeline_id, submit.queue, submit.priority,
        submit.run_after, submit.max_attempts, submit.timeout_seconds, submit.tags, submit.scope, submit.exclusive,
        submit.idempotency_key, submit.lane, submit.meta::jsonb, submit.submitted_by, submit.delivery,
        submit.steps) s;
end
$$;
comment on function reactor.submit(varchar, json, uuid, text, bigint, timestamptz, bigint, double precision, text[],
    text, boolean, text, text, json, text, text, text[]) is 'As reactor.submit with a payload of type jsonb.';

-- Inserts an array of jobs: the common part of submit_many, submit_pipeline and chain, which names the parent.
create or replace function reactor.insert_jobs(jobs jsonb, parent bigint)
    returns table (place int, id bigint, pipeline_id uuid, outcome text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    known constant text[] := array['job_type', 'payload', 'pipeline_id', 'queue', 'priority', 'run_after',
        'max_attempts', 'timeout_seconds', 'tags', 'scope', 'exclusive', 'idempotency_key', 'lane', 'meta',
        'submitted_by', 'delivery', 'steps'];
    unknown text;
begin
    if jsonb_typeof(jobs) is distinct from 'array'
        or exists (select from jsonb_array_elements(jobs) e (spec) where jsonb_typeof(e.spec) <> 'object')
    then
        perform reactor.refuse('reactor: the jobs are not an array of objects',
            'Give an array such as [{"job_type": "csv_ingest", "payload": {"file": "a.csv"}}].');
    end if;
    select k.key into unknown
    from jsonb_array_elements(jobs) e (spec) cross join lateral jsonb_object_keys(e.spec) k (key)
    where k.key <> all (known) limit 1;
    if found then
        perform reactor.refuse(format('reactor: unknown key %L in a job', unknown),
            'Use these: ' || array_to_string(known, ', ') || '.');
    end if;

    if exists (select from jsonb_array_elements(jobs) e (spec)
        where e.spec ->> 'job_type' is null or (e.spec ->> 'priority')::int not between -1000 and 1000
            or e.spec ->> 'idempotency_key' is not null or (e.spec ->> 'exclusive')::boolean
            or e.spec ->> 'steps' is not null)
    then
        for place, id, pipeline_id, outcome in
            select s.place::int, n.id, n.pipeline_id, n.outcome
            from rows from (jsonb_to_recordset(jobs) as (job_type text, payload jsonb, pipeline_id uuid, queue text,
                priority int, run_after timestamptz, max_attempts int, timeout_seconds real, tags text[], scope text,
                exclusive boolean, idempotency_key text, lane text, meta jsonb, submitted_by text, delivery text,
                steps text[])) with ordinality as s (job_type, payload, pipeline_id, queue, priority, run_after,
                max_attempts, timeout_seconds, tags, scope, exclusive, idempotency_key, lane, meta, submitted_by,
                delivery, steps, place)
            cross join lateral reactor.submit(s.job_type, s.payload, s.pipeline_id, s.queue, s.priority, s.run_after,
                s.max_attempts, s.timeout_seconds, s.tags, s.scope, s.exclusive, s.idempotency_key,
                s.lane, s.meta, s.submitted_by, s.delivery, s.steps) n
        loop
            if parent is not null and outcome = 'created' then
                update reactor.jobs j set parent_id = parent where j.id = insert_jobs.id;
            end if;
            return next;
        end loop;
        return;
    end if;

    -- These can't conflict with other jobs: one statement, with ids in the array's order.
    return query
        with inserted as (
            insert into reactor.jobs as j (job_type, payload, pipeline_id, queue, priority, run_after, max_attempts,
                timeout_seconds, tags, scope, lane, meta, submitted_by, delivery, parent_id)
            select s.job_type, coalesce(s.payload, '{}'), coalesce(s.pipeline_id, reactor.time_ordered_uuid()),
                coalesce(s.queue, 'default'), coalesce(s.priority, 0), s.run_after, s.max_attempts, s.timeout_seconds,
                coalesce(s.tags, '{}'), s.scope, s.lane, s.meta, s.submitted_by, s.delivery,
                coalesce(insert_jobs.parent, reactor.parent())
            from rows from (jsonb_to_recordset(jobs) as (job_type text, payload jsonb, pipeline_id uuid, queue text,
                priority int, run_after timestamptz, max_attempts int, timeout_seconds real, tags text[], scope text,
                lane text, meta jsonb, submitted_by text, delivery text)) with ordinality as s (job_type, payload,
                pipeline_id, queue, priority, run_after, max_attempts, timeout_seconds, tags, scope, lane, meta,
                submitted_by, delivery, place)
            order by s.place
            returning j.id, j.pipeline_id
        )
        select (row_number() over (order by i.id))::int, i.id, i.pipeline_id, 'created' from inserted i;
    if parent is null and reactor.parent() is not null then
        perform reactor.count_children(jsonb_array_length(jobs));
    end if;
end
$$;
comment on function reactor.insert_jobs is 'Inserts jobs for submit_many, submit_pipeline and chain.';

-- Takes an array of objects with submit's arguments as keys; returns rows in the order of the array.
create or replace function reactor.submit_many(jobs jsonb)
    returns table (place int, id bigint, pipeline_id uuid, outcome text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return query select p.place, p.id, p.pipeline_id, p.outcome from reactor.insert_jobs(jobs, null) p;
end
$$;
comment on function reactor.submit_many is
    'Inserts many jobs: '
    'select * from reactor.submit_many(''[{"job_type": "csv_ingest", "payload": {"file": "a.csv"}}]'')';
