-- Where a claim finds jobs. A kind is a queue and a job type: within it, jobs_ready has the jobs in the order in which
-- they are claimed.

-- The kinds to claim from, at most `batch`, those with the most urgent jobs first, without paused queues; and behind
-- which place the first job of each is, so that later queries need not walk there again, past entries of claimed jobs
-- that vacuum has not removed yet. With `marks`, only kinds that these name (reactor.claim says what they are).
create or replace function reactor.ready_kinds(
    wanted text[], paused text[], types text[], quotas int[], batch int, marks jsonb,
    out queue text[], out job_type text[], out quota int[], out after_priority smallint[], out after_id bigint[])
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
    if marks is not null then
        select array_agg(m.queue), array_agg(m.job_type), array_agg(t.quota), array_agg(m.priority), array_agg(m.id)
        into ready_kinds.queue, ready_kinds.job_type, ready_kinds.quota, after_priority, after_id
        from jsonb_to_recordset(marks) m (queue text, job_type text, priority smallint, id bigint)
        join unnest(types, quotas) t (job_type, quota) on t.job_type = m.job_type
        where m.queue <> all (paused);
        return;
    end if;
    if wanted is null then
        -- A loose index scan: one step through the index for each queue.
        with recursive ready (name) as (
            (select j.queue from reactor.jobs j
                where j.phase = 'ready' and j.lane is null
                order by j.queue limit 1)
            union all
            select (select j.queue from reactor.jobs j
                where j.phase = 'ready' and j.lane is null
                    and j.queue > ready.name
                order by j.queue limit 1)
            from ready where ready.name is not null
        )
        select array_agg(ready.name) into wanted from ready where ready.name is not null;
    end if;
    select array_agg(k.queue), array_agg(k.job_type), array_agg(k.quota), array_agg(k.priority), array_agg(k.id - 1)
    into ready_kinds.queue, ready_kinds.job_type, ready_kinds.quota, after_priority, after_id
    from (
        select o.queue, t.job_type, t.quota, head.priority, head.id
        from (select unnest(wanted) as queue except select unnest(paused)) o
        cross join unnest(types, quotas) t (job_type, quota)
        cross join lateral (
            select j.priority, j.id from reactor.jobs j
            where j.phase = 'ready' and j.lane is null
                and j.queue = o.queue and j.job_type = t.job_type
            order by j.priority, j.id limit 1) head
        -- Queues take turns.
        order by head.priority, row_number() over (partition by o.queue, head.priority order by head.id),
            hashtext(o.queue || (select random()::text)) limit batch
    ) k;
end
$$;

-- How many jobs of each kind belong to the first `batch` over all of them: by priority; at the same priority, queues
-- take turns; within a queue by id. `free`: at most so many of a queue. First without locks: locking a whole batch of
-- each kind would make other pods skip the surplus. A few jobs of each kind give bounds that none of the first `batch`
-- lies beyond; so only about that many are read, however many kinds there are.
create or replace function reactor.share_batch(
    queues text[], types text[], free int[], after_priority smallint[], after_id bigint[], batch int)
    returns int[]
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return array(
        with kind as materialized (
            select k.* from unnest(queues, types, free, after_priority, after_id)
                with ordinality k (queue, job_type, free, priority, id, n)
        ), few as materialized (
            select f.*, row_number() over (partition by f.queue, f.priority order by f.id) as place
            from (
                select k.queue, k.free, r.priority, r.id,
                    row_number() over (partition by k.queue order by r.priority, r.id) as place_in_queue
                from kind k cross join lateral (
                    select j.priority, j.id from reactor.jobs j
                    where j.phase = 'ready' and j.lane is null
                        and j.queue = k.queue and j.job_type = k.job_type and (j.priority, j.id) > (k.priority, k.id)
                    order by j.priority, j.id limit least(k.free, 1 + 2 * batch / cardinality(queues))) r
            ) f
            where f.free is null or f.place_in_queue <= f.free
        ), bound as materialized (
            select f.priority, f.place from few f order by f.priority, f.place offset batch - 1 limit 1
        ), queue_bound as materialized (
            select f.queue, f.priority, f.id from few f join bound b on b.priority = f.priority and b.place = f.place
        ), first as materialized (
            select k.n, k.queue, k.free, r.priority, r.id
            from kind k
            left join queue_bound q on q.queue = k.queue
            cross join lateral (
                select j.priority, j.id from reactor.jobs j
                where j.phase = 'ready' and j.lane is null
                    and j.queue = k.queue and j.job_type = k.job_type and (j.priority, j.id) > (k.priority, k.id)
                    and (j.priority, j.id) <= (coalesce(q.priority, (select b.priority from bound b), 32767),
                        coalesce(q.id, 9223372036854775807))
                order by j.priority, j.id limit least(k.free, batch)) r
        ), allowed as (
            select f.n from (
                select f.*, row_number() over (partition by f.queue, f.priority order by f.id) as place,
                    row_number() over (partition by f.queue order by f.priority, f.id) as place_in_queue
                from first f) f
            where f.free is null or f.place_in_queue <= f.free
            order by f.priority, f.place, hashtext(f.queue || (select random()::text)) limit batch
        )
        select (select count(*)::int from allowed a where a.n = k.n) from kind k order by k.n);
end
$$;
comment on function reactor.share_batch is 'How many jobs of each kind are among the first `batch` of all.';
