-- Dependencies between jobs, maintained by the database so that producers need nothing but SQL.
--
-- Lock order: the jobs that end, then all their dependants by id, in one statement, then the edges. Two predecessors
-- that end at the same moment each see the other as unfinished. Therefore each edge is resolved once, and the
-- dependant's counter is decremented under the lock of its row.

-- What follows from the end of these jobs: dependants become pending or are cancelled, and so on transitively.
create or replace function reactor.resolve_dependencies(ended bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    cancelled_ids bigint[];
    met bigint[];
    met_counts int[];
begin
    if not exists (select from reactor.dependencies d where d.depends_on = any (ended) and not d.resolved) then
        return;
    end if;

    with recursive cancelling (id) as (
        select d.job_id
        from reactor.dependencies d
        join reactor.jobs p on p.id = d.depends_on and p.state in ('partial', 'failed', 'cancelled')
        join reactor.jobs w on w.id = d.job_id and w.state = 'waiting'
        where p.id in (select unnest(ended)) and not d.resolved and d.needs = 'completed'
        union
        select d.job_id
        from cancelling
        join reactor.dependencies d on d.depends_on = cancelling.id and not d.resolved and d.needs = 'completed'
        join reactor.jobs w on w.id = d.job_id and w.state = 'waiting'
    )
    select array_agg(cancelling.id) into cancelled_ids from cancelling;

    -- An array that is scanned for each row, without an index or a hash, takes quadratic time: a minute for 100,000
    -- dependants. So arrays that can be long are turned into sets, here and below. Where an index is to be used, the
    -- ids come as an array or from unnest: with the statistics of a large fan-out the planner would otherwise read all
    -- jobs.
    perform from reactor.jobs j
    where j.state = 'waiting' and j.id = any (array(
        select unnest(cancelled_ids)
        union
        select d.job_id from reactor.dependencies d where d.depends_on = any (ended || cancelled_ids)
            and not d.resolved))
    order by j.id for no key update;

    with resolved as (
        update reactor.dependencies d set resolved = true
        from reactor.jobs p
        where p.id in (select unnest(ended || cancelled_ids)) and d.depends_on = p.id and not d.resolved
            and case d.needs
                when 'completed' then p.state = 'completed'
                else p.state in ('completed', 'partial', 'failed', 'cancelled')
                    or p.id in (select unnest(cancelled_ids))
            end
        returning d.job_id
    )
    select array_agg(r.job_id), array_agg(r.n) into met, met_counts
    from (select resolved.job_id, count(*)::int as n from resolved group by resolved.job_id) r;

    if cancelled_ids is not null then
        update reactor.jobs j set
            state = 'cancelled', phase = 'cancelled', finished_at = clock_timestamp(), changed_xid = txid_current(),
            broken_by = cause.id,
            error = format('Job %s (%s), which this job depends on, %s.', cause.id,
                coalesce(cause.job_type, 'no type'), cause.ended)
        from (
            select distinct on (d.job_id) d.job_id, p.id, p.job_type,
                case p.state
                    when 'partial' then 'completed only in part'
                    when 'failed' then 'failed'
                    else 'was cancelled'
                end as ended
            from reactor.dependencies d
            join reactor.jobs p on p.id = d.depends_on
            where d.job_id = any (cancelled_ids) and not d.resolved and d.needs = 'completed'
                and (p.state in ('partial', 'failed', 'cancelled') or p.id in (select unnest(cancelled_ids)))
            order by d.job_id, (p.state = 'waiting'), p.id
        ) cause
        where j.id = cause.job_id and j.state = 'waiting';
    end if;

    if met is not null then
        update reactor.jobs j set
            waiting_on = j.waiting_on - m.n, changed_xid = txid_current(),
            state = case when j.waiting_on - m.n <= 0 then 'pending' else 'waiting' end,
            phase = case when j.waiting_on - m.n > 0 then 'waiting'
                else reactor.phase('pending', j.run_after, j.parked, j.job_type, j.exclusive) end
        from unnest(met, met_counts) m (id, n)
        where j.id = m.id and j.state = 'waiting';
    end if;
end
$$;

-- Locks what these jobs wait for. Either the end of a predecessor waits for us, or we wait for it; the foreign key's
-- own lock does neither. The statements that follow have new snapshots and see how the predecessor ended. Running jobs
-- come first, because a settle locks them before any others.
create or replace function reactor.lock_predecessors(ids bigint[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select from reactor.jobs p
    where p.id = any (array(select d.depends_on from reactor.dependencies d where d.job_id = any (ids)
        and d.resolved is not true))
        and p.id <> all (ids) and p.inserted_xid <> txid_current()
    order by case p.state when 'running' then 0 when 'waiting' then 1 else 2 end, p.id for share
$$;

-- Sets the state of these jobs from the states of their predecessors. The caller has called lock_predecessors, and then
-- has locked the rows or has just inserted them.
create or replace function reactor.recompute_dependencies(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    broken bigint[];
begin
    update reactor.dependencies d set
        resolved = p.state = 'completed' or d.needs = 'finished' and p.state in ('partial', 'failed', 'cancelled')
    from reactor.jobs p
    where d.job_id = any (ids) and d.resolved is not true and p.id = d.depends_on;

    update reactor.jobs j set
        waiting_on = c.n, changed_xid = txid_current(),
        state = case when c.n > 0 then 'waiting' else 'pending' end,
        phase = case when c.n > 0 then 'waiting'
            else reactor.phase('pending', j.run_after, j.parked, j.job_type, j.exclusive) end
    from (
        select i.id, count(d.job_id)::int as n
        from unnest(ids) i (id)
        left join reactor.dependencies d on d.job_id = i.id and not d.resolved
        group by i.id
    ) c
    where j.id = c.id;

    select array_agg(distinct p.id) into broken
    from reactor.dependencies d
    join reactor.jobs p on p.id = d.depends_on
    where d.job_id = any (ids) and not d.resolved and p.state in ('partial', 'failed', 'cancelled');
    if broken is not null then
        perform reactor.resolve_dependencies(broken);
    end if;
end
$$;
