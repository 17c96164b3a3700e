-- The jobs that running ones chain. They were submitted by whoever submitted the first one.
--
-- Each child is an object with the keys of reactor.submit_many, and perhaps
-- - `depends_on`: other children of the same job, as {"place": 1}, or existing jobs, as {"id": 17}, with `needs` as in
--   reactor.submit_pipeline. A child that another job was in the way of stands for that job;
-- - `inherit`: what it takes from its parent, of queue, priority, lane, tags and scope. Its own tags are added to those
--   of its parent, and its own scope follows that of its parent, after a slash.

-- What a child inherits of its parent's columns.
create or replace function reactor.inherit(child jsonb, parent jsonb) returns jsonb
language sql immutable
return (
    select jsonb_object_agg(i.name, case i.name
        when 'tags' then (parent -> 'tags') || coalesce((
            select jsonb_agg(t.tag) from jsonb_array_elements_text(nullif(child -> 'tags', 'null')) t (tag)
            where not (parent -> 'tags') ? t.tag), '[]')
        when 'scope' then to_jsonb(nullif(concat_ws('/', parent ->> 'scope', child ->> 'scope'), ''))
        else parent -> i.name end)
    from jsonb_array_elements_text(child -> 'inherit') i (name));
comment on function reactor.inherit is 'What a child takes from the columns of its parent.';

-- Creates the children of running attempts, in the pipelines of their parents unless they name another. Returns, for
-- the attempts that still hold their jobs, what became of each child: created, existing or busy, and then the id is
-- that of the job in its way. The lock lasts until the caller's transaction has settled the attempts too.
-- Lock order: rows of running jobs, by id. Attempts that are settled in the same transaction and have no children are
-- locked with the others, or the settle would lock them later: their entries in `children` are NULL.
create or replace function reactor.chain(parents bigint[], attempts uuid[], children jsonb[])
    returns table (id bigint, ids bigint[], outcomes text[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    special constant text[] := '{depends_on,inherit}';
    parent record;
    pipeline jsonb;
    submitter jsonb;
    pipeline_and_submitter jsonb;
    setting text;
begin
    select c.id, jsonb_array_length(c.children) as size into parent
    from unnest(parents, chain.children) c (id, children)
    where jsonb_array_length(c.children) > 100000 limit 1;
    if found then
        raise exception 'reactor: job % can''t chain % jobs at once', parent.id, parent.size
            using errcode = 'program_limit_exceeded',
            hint = 'At most 100,000 are created together. Chain jobs that each chain a part of them.';
    end if;
    setting := set_config('reactor.parent', '', true);  -- these are counted by the settle
    for parent in
        select j.id, j.pipeline_id, j.submitted_by, u.children, jsonb_build_object('scope', j.scope, 'queue', j.queue,
            'priority', j.priority, 'lane', j.lane, 'tags', j.tags) as inheritable
        from (select c.id, c.attempt_id, c.children
            from unnest(parents, attempts, chain.children) c (id, attempt_id, children)) u
        join reactor.jobs j on j.id = u.id and j.attempt_id = u.attempt_id and j.state = 'running'
        order by j.id for no key update of j
    loop
        continue when parent.children is null;
        id := parent.id;
        pipeline := jsonb_build_object('pipeline_id', parent.pipeline_id);
        submitter := jsonb_strip_nulls(jsonb_build_object('submitted_by', parent.submitted_by));
        pipeline_and_submitter := pipeline || submitter;
        select array_agg(p.id), array_agg(p.outcome) into ids, outcomes
        from (select i.id, i.outcome from reactor.insert_jobs((
            select jsonb_agg(
                case when e.spec ?| special
                    then (e.spec || coalesce(reactor.inherit(e.spec, parent.inheritable), '{}')) - special
                    else e.spec end
                || case when e.spec ->> 'pipeline_id' is null
                    then case when e.spec ->> 'submitted_by' is null then pipeline_and_submitter else pipeline end
                    else case when e.spec ->> 'submitted_by' is null then submitter else '{}' end end
                order by e.place)
            from jsonb_array_elements(parent.children) with ordinality e (spec, place)), parent.id) i
            order by i.place) p;
        if jsonb_path_exists(parent.children, '$[*].depends_on') then
            perform reactor.insert_dependencies(parent.children, ids, outcomes);
        end if;
        return next;
    end loop;
end
$$;
comment on function reactor.chain is
    'Creates the children of running attempts. An attempt that does not hold its job any more creates none.';
