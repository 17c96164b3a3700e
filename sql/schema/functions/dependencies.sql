-- Dependencies, kept by the database so that plain SQL is enough.
--
-- Lock order: the jobs that end, then all their dependants in id order, by one statement, then the edges. Two predecessors
-- that end at the same moment each see the other as unfinished; so every edge is resolved once, and the dependant's
-- counter goes down under its row's lock.

-- What follows from the end of these jobs: dependants become pending, or are cancelled, and so on down the line.
create function reactor.resolve(ended bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    dead bigint[];
    met bigint[];
    met_counts int[];
begin
    if not exists (select from reactor.dependencies d where d.depends_on = any (ended) and not d.resolved) then
        return;
    end if;

    with recursive doomed (id) as (
        select d.job_id
        from reactor.dependencies d
        join reactor.jobs p on p.id = d.depends_on and p.state in ('partial', 'failed', 'cancelled')
        join reactor.jobs w on w.id = d.job_id and w.state = 'waiting'
        where p.id in (select unnest(ended)) and not d.resolved and d.needs = 'completed'
        union
        select d.job_id
        from doomed
        join reactor.dependencies d on d.depends_on = doomed.id and not d.resolved and d.needs = 'completed'
        join reactor.jobs w on w.id = d.job_id and w.state = 'waiting'
    )
    select array_agg(doomed.id) into dead from doomed;

    -- An array that is looked through for each row, and not by an index or a hash, takes its length squared: a minute for
    -- 100,000 dependants. So those that can be long are sets, here and below. And where an index is to be used, the ids come
    -- as an array or from unnest: by the number of a great fan-out's edges the planner would rather read all jobs.
    perform from reactor.jobs j
    where j.state = 'waiting' and j.id = any (array(
        select unnest(dead)
        union
        select d.job_id from reactor.dependencies d where d.depends_on = any (ended || dead) and not d.resolved))
    order by j.id for no key update;

    with resolved as (
        update reactor.dependencies d set resolved = true
        from reactor.jobs p
        where p.id in (select unnest(ended || dead)) and d.depends_on = p.id and not d.resolved
            and case d.needs
                when 'completed' then p.state = 'completed'
                else p.state in ('completed', 'partial', 'failed', 'cancelled') or p.id in (select unnest(dead))
            end
        returning d.job_id
    )
    select array_agg(r.job_id), array_agg(r.n) into met, met_counts
    from (select resolved.job_id, count(*)::int as n from resolved group by resolved.job_id) r;

    if dead is not null then
        update reactor.jobs j set
            state = 'cancelled', finished_at = clock_timestamp(), changed = pg_current_xact_id(),
            broken_by = cause.id,
            error = format('Job %s (%s), which this one needs, %s.', cause.id, coalesce(cause.job_type, 'no type'), cause.ended)
        from (
            select distinct on (d.job_id) d.job_id, p.id, p.job_type,
                case p.state
                    when 'partial' then 'completed in part only'
                    when 'failed' then 'failed'
                    else 'was cancelled'
                end as ended
            from reactor.dependencies d
            join reactor.jobs p on p.id = d.depends_on
            where d.job_id = any (dead) and not d.resolved and d.needs = 'completed'
                and (p.state in ('partial', 'failed', 'cancelled') or p.id in (select unnest(dead)))
            order by d.job_id, (p.state = 'waiting'), p.id
        ) cause
        where j.id = cause.job_id and j.state = 'waiting';
    end if;

    if met is not null then
        update reactor.jobs j set
            waiting_on = j.waiting_on - m.n, changed = pg_current_xact_id(),
            state = case when j.waiting_on - m.n <= 0 then 'pending' else 'waiting' end
        from unnest(met, met_counts) m (id, n)
        where j.id = m.id and j.state = 'waiting';
    end if;
end
$$;

-- Either the end of a predecessor waits for us, or we wait for it; the foreign key's own lock does neither. The statements
-- that follow have new snapshots, and see how it ended. Running ones first, as a settle has them before it comes to others.
create function reactor.lock_predecessors(ids bigint[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select from reactor.jobs p
    where p.id = any (array(select d.depends_on from reactor.dependencies d where d.job_id = any (ids) and d.resolved is not true))
        and p.id <> all (ids) and p.inserted_by <> pg_current_xact_id()
    order by case p.state when 'running' then 0 when 'waiting' then 1 else 2 end, p.id for share
$$;

-- Puts jobs where their dependencies say they belong. The caller has their rows locked, or has just inserted them, and
-- has called lock_predecessors before that.
create function reactor.reconsider(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    broken bigint[];
begin
    update reactor.dependencies d set
        resolved = p.state = 'completed' or d.needs = 'finished' and p.state in ('partial', 'failed', 'cancelled')
    from reactor.jobs p
    where d.job_id = any (ids) and d.resolved is not true and p.id = d.depends_on;

    update reactor.jobs j set
        waiting_on = c.n, changed = pg_current_xact_id(),
        state = case when c.n > 0 then 'waiting' else 'pending' end
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
        perform reactor.resolve(broken);
    end if;
end
$$;
