-- Inserts a whole pipeline in one call.

-- A single dependency may stand without brackets.
create or replace function reactor.as_list(value jsonb) returns jsonb
language sql immutable
return case coalesce(jsonb_typeof(value), 'null') when 'array' then value when 'null' then '[]'
    else jsonb_build_array(value) end;

-- The dependencies of jobs that were just inserted, in the order of the array. Of a job that was not created (another
-- one was in its way), none are inserted.
create or replace function reactor.insert_dependencies(jobs jsonb, ids bigint[], outcomes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- A job that waits for another in both ways waits for it to complete.
    insert into reactor.dependencies (job_id, depends_on, needs)
    select ids[e.place], predecessor.id, min(predecessor.needs)
    from jsonb_array_elements(jobs) with ordinality e (spec, place)
    cross join lateral jsonb_array_elements(reactor.as_list(e.spec -> 'depends_on')) d (need)
    cross join lateral (
        select
            case when jsonb_typeof(d.need) = 'number' then ids[d.need::int]
                when d.need ? 'place' then ids[(d.need ->> 'place')::int] else (d.need ->> 'id')::bigint end,
            case when jsonb_typeof(d.need) = 'object' then coalesce(d.need ->> 'needs', 'completed')
                else 'completed' end
    ) predecessor (id, needs)
    where outcomes[e.place] = 'created'
    group by 1, 2;
end
$$;
comment on function reactor.insert_dependencies is 'Inserts dependencies for submit_pipeline and chain.';

-- A whole pipeline, all or nothing: jobs as in submit_many, each with `depends_on`, a list of what it waits for: the
-- place (from 1) of another job in the array, or {"place": 2} or {"id": 17}, with "needs": "finished" for any terminal
-- state. If an idempotency key or an exclusive scope refuses one of the jobs, none is created, and only the jobs that
-- hold the keys and scopes are returned.
create or replace function reactor.submit_pipeline(jobs jsonb)
    returns table (place int, id bigint, pipeline_id uuid, outcome text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    new_pipeline_id uuid := reactor.time_ordered_uuid();
    places int[];
    ids bigint[];
    pipelines uuid[];
    outcomes text[];
    invalid text;
begin
    if jsonb_typeof(jobs) is distinct from 'array'
        or exists (select from jsonb_array_elements(jobs) e (spec) where jsonb_typeof(e.spec) <> 'object')
    then
        perform reactor.refuse('reactor: the jobs are not an array of objects',
            'Give an array such as [{"job_type": "read"}, {"job_type": "sum", "depends_on": [1]}].');
    end if;
    select d.need::text into invalid
    from jsonb_array_elements(jobs) e (spec)
    cross join lateral jsonb_array_elements(reactor.as_list(e.spec -> 'depends_on')) d (need)
    cross join lateral (
        select case jsonb_typeof(d.need) when 'object' then coalesce(d.need -> 'place', d.need -> 'id') else d.need end,
            case when d.need ? 'id' then 9223372036854775807 else jsonb_array_length(jobs) end
    ) n (number, maximum)
    where case when jsonb_typeof(n.number) = 'number' then
            n.number::numeric not between 1 and n.maximum or n.number::numeric % 1 <> 0
            or jsonb_typeof(d.need) = 'object' and (
                (d.need ? 'place') = (d.need ? 'id') or d.need - '{place,id,needs}'::text[] <> '{}'
                or d.need ->> 'needs' not in ('completed', 'finished'))
        else true end
    limit 1;
    if found then
        perform reactor.refuse(format('reactor: a job can''t depend on %s', invalid),
            'Use the place of another job in the array, from 1, or {"id": 17}; '
            'add "needs": "finished" for any terminal state.');
    end if;

    begin
        select array_agg(p.place order by p.place), array_agg(p.id order by p.place),
            array_agg(p.pipeline_id order by p.place), array_agg(p.outcome order by p.place)
        into places, ids, pipelines, outcomes
        from reactor.insert_jobs((
            select coalesce(jsonb_agg(case when e.spec ->> 'pipeline_id' is null
                then (e.spec - 'depends_on') || jsonb_build_object('pipeline_id', new_pipeline_id)
                    else e.spec - 'depends_on' end
                order by e.place), '[]')
            from jsonb_array_elements(jobs) with ordinality e (spec, place)), null) p;
        if 'existing' = any (outcomes) or 'busy' = any (outcomes) then
            raise exception using errcode = 'RX001';  -- rolls back what was created
        end if;
        perform reactor.insert_dependencies(jobs, ids, outcomes);
    exception when sqlstate 'RX001' then
        return query
            select u.place, u.id, u.pipeline_id, u.outcome
            from unnest(places, ids, pipelines, outcomes) u (place, id, pipeline_id, outcome)
            where u.outcome <> 'created';
        return;
    end;
    return query select u.place, u.id, u.pipeline_id, u.outcome
        from unnest(places, ids, pipelines, outcomes) u (place, id, pipeline_id, outcome);
end
$$;
comment on function reactor.submit_pipeline is
    'Inserts jobs that depend on each other, all or none: '
    'select * from reactor.submit_pipeline(''[{"job_type": "read"}, {"job_type": "sum", "depends_on": [1]}]'')';
