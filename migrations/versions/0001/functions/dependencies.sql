-- Dependencies between jobs, maintained by the database so that producers need nothing but SQL.
--
-- Lock order: the jobs that end, then their dependants by id, in one statement, then the edges. Two predecessors that
-- end at the same moment each see the other as unfinished. Therefore each edge is resolved once, and the dependant's
-- counter is decremented under the lock of its row.
--
-- The end of a job has a limited cost: it handles up to 1,000 edges, its own and those of the jobs that it cancels. The
-- others are stored in reactor.unresolved, in the same transaction, and pods continue with them: their dependants are
-- waiting until then.

-- Handles the edges of jobs that ended, given as ranges of the dependants' ids: resolves those that are met, makes
-- dependants pending when their last one is, and cancels dependants whose need can't be met any more. The edges of jobs
-- that it cancels follow, and so on, level by level, up to `batch` edges. What then remains is stored in
-- reactor.unresolved. `handled`: the number of edges.
--
-- With `wait`, the dependants of the given jobs are locked by id, in one statement: two predecessors that end at the
-- same moment take turns, and the second one releases the dependant. Everything else waits for nothing: a dependant
-- that another transaction has locked is left in reactor.unresolved. Each level is read after the jobs above it were
-- locked, so that a dependant which a producer inserts meanwhile is not missed: the producer locks them too, before it
-- commits.
--
-- (Edges are read by comparing rows, which suits one index only. With `depends_on = …` the planner may walk the
-- primary key from the first job on, because it has the wanted order too.)
create or replace function reactor.resolve_edges(
    predecessors bigint[], after_ids bigint[], until_ids bigint[], batch int, wait boolean, out handled int)
-- Plans that were made while the tables were small must not read all of them later.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    last_n bigint;     -- the range of the last edge that was read, among `predecessors`
    last_id bigint;    -- the dependant of that edge
    found_edges int;
    met_jobs bigint[];
    met_on bigint[];
    broken_jobs bigint[];
    broken_on bigint[];
    locked_jobs bigint[];
    locked_on bigint[];
    level_ids bigint[];
    level_causes bigint[];
    cancelled_ids bigint[] := '{}';
    causes bigint[] := '{}';
    all_met_jobs bigint[] := '{}';
    all_met_on bigint[] := '{}';
    all_locked_jobs bigint[] := '{}';
    all_locked_on bigint[] := '{}';
begin
    handled := 0;
    if wait then
        perform from reactor.jobs w
        where w.state = 'waiting' and w.id = any (array(
            select e.job_id
            from unnest(predecessors, after_ids, until_ids) r (id, after_id, until_id)
            cross join lateral (
                select d.job_id from reactor.dependencies d
                where not d.resolved and (d.depends_on, d.job_id) > (r.id, r.after_id)
                    and (d.depends_on, d.job_id) <= (r.id, r.until_id)
                order by d.depends_on, d.job_id limit batch) e
            limit batch))
        order by w.id for no key update;
    end if;

    loop
        -- A job that is about to be cancelled is still waiting, and meets the need `finished`.
        with edges as materialized (
            select r.n, r.id as depends_on, e.job_id, e.needs = 'finished' or p.state = 'completed' as is_met
            from unnest(predecessors, after_ids, until_ids) with ordinality r (id, after_id, until_id, n)
            cross join lateral (select j.state from reactor.jobs j where j.id = r.id offset 0) p
            cross join lateral (
                select d.job_id, d.needs from reactor.dependencies d
                where not d.resolved and (d.depends_on, d.job_id) > (r.id, r.after_id)
                    and (d.depends_on, d.job_id) <= (r.id, r.until_id)
                order by d.depends_on, d.job_id limit batch - handled) e
            limit batch - handled
        ), dependants as materialized (
            select w.id, w.state from reactor.jobs w
            where w.id = any (array(select e.job_id from edges e))
            order by w.id for no key update skip locked
        ), known as materialized (
            select e.*, e.job_id in (select w.id from dependants w) as is_ours,
                e.job_id in (select w.id from dependants w where w.state = 'waiting') as is_waiting
            from edges e
        )
        select count(*), (array_agg(k.n))[count(*)], (array_agg(k.job_id))[count(*)],
            array_agg(k.job_id) filter (where k.is_ours and k.is_met),
            array_agg(k.depends_on) filter (where k.is_ours and k.is_met),
            array_agg(k.job_id) filter (where k.is_waiting and not k.is_met),
            array_agg(k.depends_on) filter (where k.is_waiting and not k.is_met),
            array_agg(k.job_id) filter (where not k.is_ours),
            array_agg(k.depends_on) filter (where not k.is_ours)
        into found_edges, last_n, last_id, met_jobs, met_on, broken_jobs, broken_on, locked_jobs, locked_on
        from known k;

        handled := handled + found_edges;
        all_met_jobs := all_met_jobs || met_jobs;
        all_met_on := all_met_on || met_on;
        all_locked_jobs := all_locked_jobs || locked_jobs;
        all_locked_on := all_locked_on || locked_on;
        level_ids := null;
        level_causes := null;
        if broken_jobs is not null then
            select array_agg(b.id), array_agg(b.cause) into level_ids, level_causes
            from (
                select e.id, min(e.cause) as cause from unnest(broken_jobs, broken_on) e (id, cause)
                where e.id <> all (cancelled_ids)
                group by e.id) b;
            cancelled_ids := cancelled_ids || level_ids;
            causes := causes || level_causes;
        end if;

        exit when handled >= batch or level_ids is null;
        predecessors := level_ids;
        after_ids := array_fill(0::bigint, array[cardinality(level_ids)]);
        until_ids := array_fill(9223372036854775807, array[cardinality(level_ids)]);
    end loop;

    if cardinality(all_met_jobs) > 0 then
        update reactor.dependencies d set resolved = true
        from unnest(all_met_jobs, all_met_on) m (job_id, depends_on)
        where d.job_id = m.job_id and d.depends_on = m.depends_on;
    end if;
    if handled >= batch or cardinality(all_locked_jobs) > 0 then
        insert into reactor.unresolved as u (depends_on, after_id, until_id, not_before)
        select r.id, case when r.n = last_n then last_id else r.after_id end, r.until_id, clock_timestamp()
        from unnest(predecessors, after_ids, until_ids) with ordinality r (id, after_id, until_id, n)
        where handled >= batch and r.n >= last_n and exists (
            select from reactor.dependencies d
            where d.depends_on = r.id and not d.resolved and d.job_id <= r.until_id
                and d.job_id > case when r.n = last_n then last_id else r.after_id end)
        union all
        select l.id, 0, 9223372036854775807, clock_timestamp()
        from unnest(level_ids) l (id)
        where handled >= batch and exists (
            select from reactor.dependencies d where d.depends_on = l.id and not d.resolved)
        union all
        select l.depends_on, l.job_id - 1, l.job_id, clock_timestamp() + interval '100 ms'
        from unnest(all_locked_on, all_locked_jobs) l (depends_on, job_id)
        on conflict (depends_on, until_id) do update set
            after_id = least(u.after_id, excluded.after_id), not_before = excluded.not_before;
    end if;
    if handled >= batch then
        perform reactor.notify_jobs();  -- the next claim of a pod continues
    end if;
    if cardinality(cancelled_ids) > 0 then
        with broken as materialized (
            select c.id, p.id as cause, p.job_type, p.state
            from unnest(cancelled_ids, causes) c (id, cause)
            cross join lateral (select j.id, j.job_type, j.state from reactor.jobs j where j.id = c.cause offset 0) p
        )
        update reactor.jobs j set
            state = 'cancelled', phase = 'cancelled', finished_at = clock_timestamp(), changed_xid = txid_current(),
            broken_by = b.cause,
            error = format('Job %s (%s), which this job depends on, %s.', b.cause, coalesce(b.job_type, 'no type'),
                case b.state
                    when 'partial' then 'completed only in part'
                    when 'failed' then 'failed'
                    else 'was cancelled'
                end)
        from broken b
        where j.id = b.id and j.state = 'waiting';
    end if;
    if cardinality(all_met_jobs) > 0 then
        with met as materialized (
            select e.id, count(*)::int as n from unnest(all_met_jobs) e (id) group by e.id
        )
        update reactor.jobs j set
            waiting_on = j.waiting_on - m.n, changed_xid = txid_current(),
            state = case when j.waiting_on - m.n <= 0 then 'pending' else 'waiting' end,
            ready_at = case when j.waiting_on - m.n <= 0 then clock_timestamp() else j.ready_at end,
            phase = case when j.waiting_on - m.n > 0 then 'waiting'
                else reactor.phase('pending', j.run_after, j.parked, j.job_type, j.exclusive) end
        from met m
        -- A retry has suspended those with waiting_on = 0, and counts what they wait for when it releases them.
        where j.id = m.id and j.state = 'waiting' and j.waiting_on > 0;
    end if;
end
$$;
comment on function reactor.resolve_edges is
    'Releases or cancels dependants of ended jobs, up to a number of edges; the rest is left in reactor.unresolved.';

-- What follows from the end of these jobs, up to 1,000 edges. Called for every update of jobs, so it returns early.
create or replace function reactor.resolve_dependencies(ended bigint[]) returns void
-- A plan that was made for a small table would compare each of its rows with each of these jobs.
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    ids bigint[];
begin
    if not exists (select from reactor.dependencies d where d.depends_on = any (ended) and not d.resolved) then
        return;
    end if;
    -- Dependants that resolve_edges cancels come here too, by the trigger: it follows their edges itself.
    -- By id, because reactor.cancel locks the first of their dependants in this order.
    select array_agg(j.id order by j.id) into ids from reactor.jobs j
    where j.id = any (ended) and not (j.state = 'cancelled' and j.broken_by is not null);
    if ids is not null then
        perform reactor.resolve_edges(ids, array_fill(0::bigint, array[cardinality(ids)]),
            array_fill(9223372036854775807, array[cardinality(ids)]), 1000, true);
    end if;
end
$$;

-- Continues where the ends of jobs with many dependants stopped, with up to `batch` edges, and where large retries
-- stopped. Each call is a transaction
-- of its own, so that its locks are short, and waits for nothing. `next_in_seconds`: when the next call has something
-- to do; 0: now, NULL: nothing is left.
create or replace function reactor.resolve_more(batch int, out handled int, out next_in_seconds float8)
language plpgsql set search_path = pg_catalog, pg_temp
    set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    taken bigint[];
    taken_until bigint[];
    predecessors bigint[];
    after_ids bigint[];
    until_ids bigint[];
begin
    handled := 0;
    select array_agg(u.depends_on), array_agg(u.after_id), array_agg(u.until_id) into taken, after_ids, taken_until
    from (
        select u.depends_on, u.after_id, u.until_id from reactor.unresolved u
        where u.not_before <= (select clock_timestamp())
        order by u.not_before limit batch
        for update skip locked) u;
    if taken is not null then
        -- In place: a retry of the job, which deletes these rows first, waits for them and finds what this transaction
        -- has left of them.
        update reactor.unresolved u set after_id = u.until_id
        from unnest(taken, taken_until) r (id, until_id)
        where u.depends_on = r.id and u.until_id = r.until_id;

        -- A new statement, which sees the jobs as they are now.
        select array_agg(r.id), array_agg(r.after_id), array_agg(r.until_id) into predecessors, after_ids, until_ids
        from unnest(taken, after_ids, taken_until) r (id, after_id, until_id)
        join reactor.jobs p on p.id = r.id
        where p.state in ('completed', 'partial', 'failed', 'cancelled');
        if predecessors is not null then
            handled := reactor.resolve_edges(predecessors, after_ids, until_ids, batch, false);
        end if;
        delete from reactor.unresolved u
        using unnest(taken, taken_until) r (id, until_id)
        where u.depends_on = r.id and u.until_id = r.until_id and u.after_id = u.until_id;
    end if;

    select greatest(extract(epoch from u.not_before - clock_timestamp())::float8,
        -- If nothing could be taken, other transactions are doing the rest.
        case when taken is null then 0.1 else 0 end)
    into next_in_seconds
    from reactor.unresolved u order by u.not_before limit 1;
    if exists (select from reactor.retries) then
        select least(resolve_more.next_in_seconds, r.next_in_seconds) into next_in_seconds
        from reactor.retry_more(batch) r;
    end if;
    if next_in_seconds = 0 then
        perform reactor.notify_jobs();
    end if;
end
$$;
comment on function reactor.resolve_more is
    'Releases or cancels more dependants of jobs that ended, and continues large retries, in a short transaction; '
    'says when to call it again.';

-- Locks predecessors. Either the end of one of them waits for us, or we wait for it; the foreign key's own lock does
-- neither. The statements that follow have new snapshots and see how the predecessor ended. Running jobs come first,
-- because a settle locks them before any others.
create or replace function reactor.lock_jobs(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from reactor.jobs p where p.id = any (ids)
    order by case p.state when 'running' then 0 when 'waiting' then 1 else 2 end, p.id for share;
end
$$;

-- Locks what these jobs wait for.
create or replace function reactor.lock_predecessors(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.lock_jobs(array(
        select distinct d.depends_on from reactor.dependencies d
        where d.job_id = any (ids) and d.resolved is not true and d.depends_on not in (select unnest(ids))));
end
$$;

-- Sets the state of these jobs from the states of their predecessors. The caller has locked the rows, or has just
-- inserted them.
create or replace function reactor.recompute_dependencies(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update reactor.dependencies d set
        resolved = p.state = 'completed' or d.needs = 'finished' and p.state in ('partial', 'failed', 'cancelled')
    from reactor.jobs p
    where d.job_id = any (ids) and d.resolved is not true and p.id = d.depends_on
        and (d.resolved is null or p.state in ('completed', 'partial', 'failed', 'cancelled'));

    update reactor.jobs j set
        waiting_on = c.n, changed_xid = txid_current(),
        state = case when c.n > 0 then 'waiting' else 'pending' end,
        ready_at = case when c.n > 0 then null else clock_timestamp() end,
        phase = case when c.n > 0 then 'waiting'
            else reactor.phase('pending', j.run_after, j.parked, j.job_type, j.exclusive) end
    from (
        select i.id, count(d.job_id)::int as n
        from unnest(ids) i (id)
        left join reactor.dependencies d on d.job_id = i.id and not d.resolved
        group by i.id
    ) c
    where j.id = c.id;
end
$$;

-- Releases or cancels those of these jobs whose predecessors have ended. Another transaction that ends one meanwhile
-- waits for the caller, or leaves the edge in reactor.unresolved.
create or replace function reactor.resolve_ended(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    predecessors bigint[];
    after_ids bigint[];
    until_ids bigint[];
begin
    select array_agg(e.depends_on), array_agg(e.first_id - 1), array_agg(e.last_id)
    into predecessors, after_ids, until_ids
    from (
        select d.depends_on, min(d.job_id) as first_id, max(d.job_id) as last_id
        from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
        where d.job_id = any (ids) and not d.resolved and p.state in ('completed', 'partial', 'failed', 'cancelled')
        group by d.depends_on) e;
    if predecessors is not null then
        perform reactor.resolve_edges(predecessors, after_ids, until_ids, 1000, false);
    end if;
end
$$;

-- A job is deleted, and with it the edge by which another job needs it. Without the edge, that job would run although
-- its need was never met: at the next repair if it waits, after a retry if it was cancelled.
create or replace function reactor.check_lost_need() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if exists (select from reactor.jobs j where j.id = old.job_id)
        and not exists (select from reactor.jobs p where p.id = old.depends_on)
    then
        raise exception 'reactor: job % can''t be deleted while job % needs it', old.depends_on, old.job_id
            using errcode = 'foreign_key_violation',
            hint = format('Delete job %s too, or first its dependency: delete from reactor.dependencies '
                'where job_id = %s and depends_on = %s.', old.job_id, old.job_id, old.depends_on);
    end if;
    return null;
end
$$;

-- Whether a job of another pipeline needs this one, and has not got what it needs: it was cancelled, or waits. Without
-- the edge, a retry would run that job.
create or replace function reactor.is_needed(id bigint) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return exists (
        select from reactor.dependencies d
        where d.depends_on = is_needed.id and not d.resolved
            and (select w.pipeline_id from reactor.jobs w where w.id = d.job_id)
                <> (select p.pipeline_id from reactor.jobs p where p.id = d.depends_on));
end
$$;
comment on function reactor.is_needed is
    'Whether a job of another pipeline needs this one and has not got it; such a job is not pruned.';
