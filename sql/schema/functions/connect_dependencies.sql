-- Is there a way from one of these jobs back to itself? Returns some jobs on it, else NULL.
-- Kahn's algorithm over what this transaction inserted above them: jobs that wait for nothing are taken away until none
-- are left, or a circle is. In arrays, so that ten thousand edges take tens of milliseconds.
create function reactor.find_cycle(starts bigint[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    nodes bigint[];
    needed int[];      -- edges, sorted by this end
    needing int[];
    first_edge int[];  -- of a node, among `needed`
    open_needs int[];  -- of a node
    todo int[] := '{}';
    taken int := 0;
    edge int;
begin
    with recursive above (id) as (
        select unnest(starts)
        union
        select d.depends_on
        from above
        join reactor.dependencies d on d.job_id = above.id
        join reactor.jobs p on p.id = d.depends_on and p.inserted_by = pg_current_xact_id()
    )
    select array_agg(above.id) into nodes from above;

    select array_agg(u.n::int order by u.n, w.n), array_agg(w.n::int order by u.n, w.n) into needed, needing
    from reactor.dependencies d
    join unnest(nodes) with ordinality w (id, n) on w.id = d.job_id
    join unnest(nodes) with ordinality u (id, n) on u.id = d.depends_on;

    open_needs := array_fill(0, array[cardinality(nodes)]);
    first_edge := open_needs;
    for edge in 1 .. coalesce(cardinality(needed), 0) loop
        open_needs[needing[edge]] := open_needs[needing[edge]] + 1;
        if first_edge[needed[edge]] = 0 then
            first_edge[needed[edge]] := edge;
        end if;
    end loop;
    for node in 1 .. cardinality(nodes) loop
        if open_needs[node] = 0 then
            todo := todo || node;
        end if;
    end loop;
    while taken < cardinality(todo) loop
        taken := taken + 1;
        edge := first_edge[todo[taken]];
        while edge > 0 and needed[edge] = todo[taken] loop
            open_needs[needing[edge]] := open_needs[needing[edge]] - 1;
            if open_needs[needing[edge]] = 0 then
                todo := todo || needing[edge];
            end if;
            edge := edge + 1;
        end loop;
    end loop;
    if taken = cardinality(nodes) then
        return null;
    end if;
    return array(
        select n.id from unnest(nodes, open_needs) n (id, open_needs) where n.open_needs > 0 order by n.id limit 10);
end
$$;

-- At once: what can be told without looking at other transactions.
create function reactor.check_dependencies() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    culprit bigint;
begin
    select e.job_id into culprit from inserted e where e.job_id = e.depends_on limit 1;
    if found then
        raise exception 'reactor: job % can''t depend on itself', culprit using errcode = 'check_violation',
            hint = 'depends_on names the job that must end first.';
    end if;

    select x.id into culprit
    from (select e.job_id from inserted e union select e.depends_on from inserted e) x (id)
    where not exists (select from reactor.jobs j where j.id = x.id) limit 1;
    if found then
        raise exception 'reactor: there is no job %', culprit using errcode = 'foreign_key_violation',
            hint = 'Insert the job first, and take its id from RETURNING id.';
    end if;

    -- Otherwise any producer could freeze anybody's job by making it wait.
    select j.id into culprit
    from inserted e join reactor.jobs j on j.id = e.job_id
    where j.inserted_by <> pg_current_xact_id() limit 1;
    if found then
        raise exception 'reactor: job % was not inserted by this transaction', culprit
            using errcode = 'object_not_in_prerequisite_state',
            hint = 'Insert a job and what it depends on in one transaction.';
    end if;
    return null;
end
$$;
create trigger check_dependencies after insert on reactor.dependencies
    referencing new table as inserted for each statement execute function reactor.check_dependencies();

-- At commit, once for all edges of the transaction: until then nobody else sees the jobs, and whatever is locked here
-- would be locked for as long as the producer takes.
create function reactor.first_dependency() returns boolean
language plpgsql as $$
begin
    return case when pg_catalog.current_setting('reactor.connecting', true) = 'yes' then false
        else pg_catalog.set_config('reactor.connecting', 'yes', true) is not null end;
end
$$;

create function reactor.connect_dependencies() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ids bigint[];
    circle bigint[];
begin
    -- Constraints may have been set immediate: then edges that follow come here again.
    perform set_config('reactor.connecting', 'no', true);
    select array_agg(distinct j.id) into ids
    from reactor.dependencies d join reactor.jobs j on j.id = d.job_id
    where d.resolved is null and j.inserted_by = pg_current_xact_id() and j.state in ('pending', 'waiting');
    if ids is null then
        return null;
    end if;

    -- A circle has at least one edge from an older job to a newer one. Most transactions have none; where this is not the
    -- first time (constraints were set immediate), it may be among those that are connected already.
    if current_setting('reactor.connected', true) = 'yes' or exists (
        select from reactor.dependencies d where d.resolved is null and d.job_id = any (ids) and d.depends_on > d.job_id)
    then
        circle := reactor.find_cycle(ids);
        if circle is not null then
            raise exception 'reactor: these jobs wait for each other: %', array_to_string(circle, ', ')
                using errcode = 'check_violation', hint = 'Remove one of the dependencies among them.';
        end if;
    end if;

    perform set_config('reactor.connected', 'yes', true);
    perform reactor.lock_predecessors(ids);
    perform reactor.reconsider(ids);
    return null;
end
$$;
create constraint trigger connect_dependencies after insert on reactor.dependencies
    deferrable initially deferred for each row when (reactor.first_dependency())
    execute function reactor.connect_dependencies();
