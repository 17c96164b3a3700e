-- Known job types: checks of payloads before jobs are inserted, and whether a live worker process would run them.

-- What is wrong with a payload by the schema of its type. It is refused only if no live version of the handler accepts
-- it: those that were published before the newest one count while a live worker process has them.
create or replace function reactor.job_complaints(job_type text, payload jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    known record;
    complaints jsonb;
begin
    select t.payload_schema as schema, t.earlier_schemas into known from reactor.job_types t
    where t.name = job_complaints.job_type and t.is_checked and t.payload_schema is not null;
    if not found then
        return null;
    end if;
    complaints := reactor.payload_complaints(payload, known.schema);
    if complaints is null or known.earlier_schemas = '{}' then
        return complaints;
    end if;
    if exists (
        select from jsonb_each(known.earlier_schemas) e (version, schema)
        where exists (
                select from reactor.live_workers w
                where job_complaints.job_type = any (w.job_types)
                    and w.schema_versions[array_position(w.job_types, job_complaints.job_type)] = e.version)
            and reactor.payload_complaints(payload, e.schema) is null)
    then
        return null;
    end if;
    return complaints;
end
$$;
comment on function reactor.job_complaints is
    'What is wrong with the payload of a job of this type: an array of objects with field and message, or NULL.';

-- reactor.settings.check_payloads, as a constant that is inlined where rows are inserted: they pay nothing while it is
-- false. set_check_payloads replaces this function. (To enable or disable a trigger takes a lock that waits for
-- all transactions that have inserted jobs.)
--
-- Not immutable: plans in which its value is folded into an expression would not be made again when it changes. And not
-- replaced when this file is run again.
do $$
begin
    if to_regprocedure('reactor.checks_payloads()') is null then
        create function reactor.checks_payloads() returns boolean language sql stable return false;
    end if;
end
$$;

create or replace function reactor.set_check_payloads() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    execute 'create or replace function reactor.checks_payloads() returns boolean language sql stable return '
        || case when new.check_payloads then 'true' else 'false' end;
    return null;
end
$$;

-- For plain inserts, where the setting is on.
create or replace function reactor.check_job_payload(job_type text, payload jsonb) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    complaints jsonb := reactor.job_complaints(job_type, payload);
begin
    if complaints is not null then
        perform reactor.refuse(
            format('reactor: the payload does not fit the job type %L: %s %s', left(job_type, 100),
                complaints -> 0 ->> 'field', complaints -> 0 ->> 'message'),
            case when jsonb_array_length(complaints) > 1
                then format('%s more fields are invalid. ', jsonb_array_length(complaints) - 1) else '' end
            || 'reactor.job_types has the schema of each type.');
    end if;
end
$$;

-- A key that is held now. As reactor.submit answers, but no key of a job outside of the window.
create or replace function reactor.is_key_held(job_type text, idempotency_key text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    return exists (
        select from reactor.jobs j
        where j.job_type = is_key_held.job_type and j.idempotency_key = is_key_held.idempotency_key
            and j.phase <> 'cancelled'
            and j.created_at >= clock_timestamp() - (select s.idempotency_window from reactor.settings s));
end
$$;
comment on function reactor.is_key_held is 'Whether an idempotency key belongs to a job within the window.';

-- Complaints about the payloads of an array of jobs, of the first ten that have any. After five seconds the others are
-- not checked: a hostile payload may take half a second. A job whose idempotency key is held is not checked; of
-- jobs that are submitted as a pipeline, then none is.
create or replace function reactor.find_complaints(jobs jsonb, as_pipeline boolean)
    returns table (place int, field text, message text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    job record;
    complaints jsonb;
    complaining int := 0;
    started_at constant timestamptz := clock_timestamp();
begin
    if as_pipeline and exists (
        select from jsonb_array_elements(jobs) e (spec)
        where e.spec ->> 'idempotency_key' is not null
            and reactor.is_key_held(e.spec ->> 'job_type', e.spec ->> 'idempotency_key'))
    then
        return;
    end if;
    for job in
        select e.place::int as place, e.spec ->> 'job_type' as job_type, e.spec ->> 'idempotency_key' as key,
            coalesce(nullif(e.spec -> 'payload', 'null'), '{}') as payload
        from jsonb_array_elements(jobs) with ordinality e (spec, place)
        where e.spec ->> 'job_type' in (select t.name from reactor.job_types t
            where t.is_checked and t.payload_schema is not null)
        order by e.place
    loop
        complaints := reactor.job_complaints(job.job_type, job.payload);
        if complaints is not null and (job.key is null or not reactor.is_key_held(job.job_type, job.key)) then
            return query select job.place, c.complaint ->> 'field', c.complaint ->> 'message'
                from jsonb_array_elements(complaints) c (complaint);
            complaining := complaining + 1;
        end if;
        exit when complaining >= 10 or clock_timestamp() > started_at + interval '5 seconds';
    end loop;
end
$$;
comment on function reactor.find_complaints is 'What is wrong with the payloads of jobs that are to be submitted.';

-- As reactor.submit_many, or reactor.submit_pipeline with `as_pipeline`; in addition it checks payloads, and says
-- which of the new jobs no live worker process would run. Payloads that don't fit are an outcome and not an error: it
-- returns a row with the outcome `invalid` for each complaint, with the job's place, and inserts nothing. The
-- transaction of the caller goes on.
--
-- `warning` is `no_handler` if no live worker process has a handler for the job, and `no_pod_for_queue` if those that
-- have one don't work on its queue. For a type that is not known, `known_types` has those that are, as a JSON array.
create or replace function reactor.submit_checked(jobs jsonb, as_pipeline boolean default false)
    returns table (place int, id bigint, pipeline_id uuid, outcome text, field text, message text, warning text,
        known_types text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    has_schema boolean;
    is_handled boolean;
begin
    if jsonb_array_length(jobs) = 1 then
        -- The same, without an aggregate.
        select
            (select t.is_checked and t.payload_schema is not null from reactor.job_types t
                where t.name = jobs #>> '{0,job_type}'),
            exists (
                select from reactor.live_workers w
                where jobs #>> '{0,job_type}' = any (w.job_types)
                    and (w.queues is null or coalesce(jobs #>> '{0,queue}', 'default') = any (w.queues)))
        into has_schema, is_handled;
    else
        select bool_or(t.is_checked and t.payload_schema is not null),
            bool_and(exists (
                select from reactor.live_workers w
                where k.job_type = any (w.job_types) and (w.queues is null or k.queue = any (w.queues))))
        into has_schema, is_handled
        from (
            select distinct e.spec ->> 'job_type' as job_type, coalesce(e.spec ->> 'queue', 'default') as queue
            from jsonb_array_elements(jobs) e (spec)) k
        left join reactor.job_types t on t.name = k.job_type;
    end if;
    -- Conditions of their own: every transaction compiles what it reaches.
    if has_schema then
        if jsonb_array_length(jobs) > 1
            or reactor.job_complaints(jobs #>> '{0,job_type}', coalesce(nullif(jobs #> '{0,payload}', 'null'), '{}'))
                is not null
        then
            return query select c.place, null::bigint, null::uuid, 'invalid', c.field, c.message, null, null
                from reactor.find_complaints(jobs, as_pipeline) c;
            if found then
                return;
            end if;
        end if;
    end if;
    if is_handled and as_pipeline then
        return query select p.place, p.id, p.pipeline_id, p.outcome, null, null, null, null
            from reactor.submit_pipeline(jobs) p;
    elsif is_handled then
        return query select p.place, p.id, p.pipeline_id, p.outcome, null, null, null, null
            from reactor.insert_jobs(jobs, null) p;
    else
        return query
            with created as materialized (
                select p.* from reactor.submit_pipeline(case when as_pipeline then jobs else '[]' end) p
                union all
                select p.* from reactor.insert_jobs(case when as_pipeline then '[]' else jobs end, null) p
            ), kind as materialized (
                select k.job_type, k.queue,
                    (select case when bool_or(w.queues is null or k.queue = any (w.queues)) then null
                            when count(*) > 0 then 'no_pod_for_queue' else 'no_handler' end
                        from reactor.live_workers w where k.job_type = any (w.job_types)) as warning,
                    t.name is not null as is_known
                from (
                    select distinct e.spec ->> 'job_type' as job_type, coalesce(e.spec ->> 'queue', 'default') as queue
                    from jsonb_array_elements(jobs) e (spec)) k
                left join reactor.job_types t on t.name = k.job_type
            )
            select c.place, c.id, c.pipeline_id, c.outcome, null, null, k.warning,
                case when k.warning = 'no_handler' and not k.is_known
                    and c.place = min(c.place) over (partition by k.job_type, k.queue) then (
                    select jsonb_agg(t.name)::text from (select t.name from reactor.job_types t limit 500) t) end
            from created c
            join jsonb_array_elements(jobs) with ordinality e (spec, place) on e.place = c.place
            join kind k on k.job_type = e.spec ->> 'job_type' and k.queue = coalesce(e.spec ->> 'queue', 'default');
    end if;
end
$$;
comment on function reactor.submit_checked is
    'Inserts many jobs, or a pipeline, whose payloads fit; outcome is invalid where one does not: '
    'select * from reactor.submit_checked(''[{"job_type": "csv_ingest", "payload": {"file": "a.csv"}}]'')';
