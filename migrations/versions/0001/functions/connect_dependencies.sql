-- Checks the edges that a transaction inserted, and connects them at its commit.

-- Finds a dependency cycle through these jobs: returns some jobs of it, or NULL if there is none. Kahn's algorithm over
-- the jobs of this transaction that they depend on: jobs without open dependencies are removed until none are left, or
-- a cycle is. In arrays, so that ten thousand edges take tens of milliseconds.
create or replace function reactor.find_cycle(starts bigint[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_hashjoin = on as $$
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
        -- Without `offset 0` the planner may read all dependencies at each level.
        select p.id
        from above
        cross join lateral (select d.depends_on from reactor.dependencies d where d.job_id = above.id offset 0) d
        cross join lateral (
            select j.id from reactor.jobs j where j.id = d.depends_on and j.inserted_xid = txid_current() offset 0) p
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

-- For ORMs that write every column: NULL is the default too, and what they write to the engine's column is ignored.
create or replace function reactor.complete_dependency() returns trigger
language plpgsql as $$
begin
    new.needs := coalesce(new.needs, 'completed');
    new.resolved := null;
    return new;
end
$$;

-- Immediately: what can be checked without reading other transactions' rows.
create or replace function reactor.check_dependencies() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    job bigint;
begin
    select e.job_id into job from inserted e where e.job_id = e.depends_on limit 1;
    if found then
        raise exception 'reactor: job % can''t depend on itself', job using errcode = 'check_violation',
            hint = 'Set depends_on to the job that must end first.';
    end if;

    select x.id into job
    from (select e.job_id from inserted e union select e.depends_on from inserted e) x (id)
    where not exists (select from reactor.jobs j where j.id = x.id) limit 1;
    if found then
        raise exception 'reactor: job % does not exist', job using errcode = 'foreign_key_violation',
            hint = 'Insert the job first and take its id from RETURNING id.';
    end if;

    -- Otherwise any producer could block any other job by making it wait.
    select j.id into job
    from inserted e join reactor.jobs j on j.id = e.job_id
    where j.inserted_xid <> txid_current() limit 1;
    if found then
        raise exception 'reactor: job % was not inserted by this transaction', job
            using errcode = 'object_not_in_prerequisite_state',
            hint = 'Insert a job and its dependencies in one transaction.';
    end if;

    insert into reactor.connecting as c (xid, first_id)
    select txid_current(), min(e.job_id) from inserted e having count(*) > 0
    on conflict (xid) do update set first_id = excluded.first_id where excluded.first_id < c.first_id;
    return null;
end
$$;

-- Connecting runs at commit, once for all edges of the transaction. Until then no other transaction sees the jobs, and
-- the locks taken here are not held while the producer works. The jobs are written first, with what their predecessors
-- were when they were read. Then the row in reactor.connecting is updated, which calls this trigger a second time,
-- after all other deferred triggers: only then the predecessors are locked, and what happened to them in between is
-- resolved. So a settle waits for the commit of a producer, but not for the 50,000 jobs that it connects.
create or replace function reactor.connect_dependencies() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    noted reactor.connecting;
    ids bigint[];
    edges int;
    cycle bigint[];
    external bigint[];
begin
    select c.* into noted from reactor.connecting c where c.xid = txid_current();
    if not found then
        return null;
    end if;

    select array_agg(distinct j.id), count(*) into ids, edges
    from reactor.dependencies d join reactor.jobs j on j.id = d.job_id
    where d.resolved is null and d.job_id >= noted.first_id and j.inserted_xid = txid_current()
        and j.state in ('pending', 'waiting');
    if ids is null then
        perform reactor.lock_jobs(noted.predecessors);
        -- A new statement, which sees how they ended.
        perform reactor.resolve_edges(p.ids, array_fill(noted.first_id - 1, array[cardinality(p.ids)]),
            array_fill(9223372036854775807, array[cardinality(p.ids)]), 1000, false)
        from (select array_agg(j.id) as ids from reactor.jobs j
            where j.id = any (noted.predecessors) and j.state in ('completed', 'partial', 'failed', 'cancelled')) p
        where p.ids is not null;
        delete from reactor.connecting c where c.xid = txid_current();
        return null;
    end if;
    if edges > 100000 then
        raise exception 'reactor: a transaction can''t insert % dependencies', edges
            using errcode = 'program_limit_exceeded',
            hint = 'At most 100,000 are connected at once. Insert the jobs in several transactions, '
                'or depend on one job that depends on the others.';
    end if;

    -- A cycle has at least one edge from an older job to a newer one. Most transactions have no such edge. If this is
    -- not the first time (constraints were set immediate), that edge may be among those that are already connected.
    if exists (
        select from reactor.dependencies d where d.resolved is null and d.job_id = any (ids)
            and (d.depends_on > d.job_id or exists (
                select from reactor.dependencies e join reactor.jobs p on p.id = e.job_id
                where e.job_id = d.depends_on and e.resolved is not null and p.inserted_xid = txid_current())))
    then
        cycle := reactor.find_cycle(ids);
        if cycle is not null then
            raise exception 'reactor: these jobs depend on each other: %', array_to_string(cycle, ', ')
                using errcode = 'check_violation', hint = 'Remove one of the dependencies among them.';
        end if;
    end if;

    perform reactor.recompute_dependencies(ids);
    select array_agg(distinct p.id) into external
    from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
    where d.job_id = any (ids) and not d.resolved
        and (p.inserted_xid <> txid_current() or p.state in ('completed', 'partial', 'failed', 'cancelled'));
    if external is null and noted.predecessors is null then
        delete from reactor.connecting c where c.xid = txid_current();
    else
        update reactor.connecting c set predecessors = c.predecessors || external where c.xid = txid_current();
    end if;
    -- Connecting many edges takes time, and a notification from before it may have come too early.
    perform reactor.notify_jobs();
    return null;
end
$$;
