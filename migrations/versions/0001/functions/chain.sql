-- Creates the children of running attempts, in the pipelines of their parents unless they name another. Returns, for
-- the attempts that still hold their jobs, the number of children created and the jobs whose exclusive scopes refused
-- others. The lock lasts until the caller's transaction has settled the attempts too.
-- Lock order: rows of running jobs, by id. Attempts that are settled in the same transaction and have no children are
-- locked with the others, or the settle would lock them later: their entries in `children` are NULL.
create or replace function reactor.chain(parents bigint[], attempts uuid[], children jsonb[])
    returns table (id bigint, created int, busy bigint[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    parent record;
begin
    select c.id, jsonb_array_length(c.children) as size into parent
    from unnest(parents, chain.children) c (id, children)
    where jsonb_array_length(c.children) > 100000 limit 1;
    if found then
        raise exception 'reactor: job % can''t chain % jobs at once', parent.id, parent.size
            using errcode = 'program_limit_exceeded',
            hint = 'At most 100,000 are created together. Chain jobs that each chain a part of them.';
    end if;
    for parent in
        select j.id, j.pipeline_id, u.children
        from (select c.id, c.attempt_id, c.children
            from unnest(parents, attempts, chain.children) c (id, attempt_id, children)) u
        join reactor.jobs j on j.id = u.id and j.attempt_id = u.attempt_id and j.state = 'running'
        order by j.id for no key update of j
    loop
        continue when parent.children is null;
        id := parent.id;
        select count(*) filter (where p.outcome = 'created'), array_agg(p.id) filter (where p.outcome = 'busy')
        into created, busy
        from reactor.insert_jobs((
            select jsonb_agg(case when e.spec ->> 'pipeline_id' is null
                then e.spec || jsonb_build_object('pipeline_id', parent.pipeline_id) else e.spec end order by e.place)
            from jsonb_array_elements(parent.children) with ordinality e (spec, place)), parent.id) p;
        return next;
    end loop;
end
$$;
comment on function reactor.chain is
    'Creates the children of running attempts. An attempt that does not hold its job any more creates none.';
