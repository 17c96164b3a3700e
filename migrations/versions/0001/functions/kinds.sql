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

-- The ready kinds without lanes, from the first one on. Most claims need to know no more: `is_only`, all but this one
-- are full, and it has no limits; `is_empty`, all are full; `has_limits`, an open one has some, or there are many.
-- An estimate, since nothing is locked. `is_limited`: some kinds are full.
create or replace function reactor.open_ready_kinds(
    wanted text[], types text[], first_queue text, first_type text,
    out queue text, out job_type text, out is_only boolean, out is_empty boolean, out has_limits boolean,
    out is_limited boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    most int := 10;
    open_count int;
begin
    with recursive ready (queue, job_type, n) as (
        select first_queue, first_type, 1
        union all
        select j.queue, j.job_type, r.n + 1
        from ready r cross join lateral (
            select j.queue, j.job_type from reactor.jobs j
            where j.phase = 'ready' and j.lane is null and (j.queue, j.job_type) > (r.queue, r.job_type)
            order by j.queue, j.job_type limit 1) j
        where r.n <= most
    ), kind as (
        select r.queue, r.job_type, r.n, l.is_full
        from ready r cross join lateral (
            select bool_or(l.max_running is not null and l.max_running <= case
                    when l.queue = '' then (select count(*) from reactor.places p where p.job_type = l.job_type)
                    when l.job_type = '' then (select count(*) from reactor.places p where p.queue = l.queue)
                    else (select count(*) from reactor.places p
                        where p.queue = l.queue and p.job_type = l.job_type) end
                or l.rate is not null and exists (
                    select from reactor.rates s
                    where s.queue = l.queue and s.job_type = l.job_type and s.lane = '' and s.paced_at = l.paced_at
                        and s.paid_until > statement_timestamp() + (l.burst - 1) * l.every)) as is_full
            from reactor.limit_rules l
            where l.queue in ('', r.queue) and l.job_type in ('', r.job_type) and l.lane = '') l
        where r.n > most or r.job_type = any (types) and (wanted is null or r.queue = any (wanted))
            and not exists (select from reactor.queues q where q.name = r.queue and q.paused)
    )
    select min(k.queue) filter (where k.is_full is null), min(k.job_type) filter (where k.is_full is null),
        count(*) filter (where k.is_full is not true),
        coalesce(bool_or(k.is_full is false or k.n > most), false), coalesce(bool_or(k.is_full), false)
    into open_ready_kinds.queue, open_ready_kinds.job_type, open_count, has_limits, is_limited
    from kind k;
    is_only := open_count = 1 and not has_limits;
    is_empty := open_count = 0;
    has_limits := has_limits or open_count > 1;
end
$$;
comment on function reactor.open_ready_kinds is 'Whether limits leave more than one of the ready kinds open.';

-- The kinds to claim from, as far as limits on whole queues and types leave them open now. `is_plain`: it has neither
-- limits nor lanes, and so no lock is needed. `is_open`: false if there are only news to take.
create or replace function reactor.open_kinds(
    wanted text[], types text[], quotas int[], batch int,
    out queue text[], out job_type text[], out quota int[], out is_plain boolean[], out is_open boolean[])
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    full_queue text[];
    full_type text[];
    full_types text[];  -- in any queue
    is_any boolean := wanted is null;
    any_arrived boolean;
    any_departed boolean;
    any_due boolean;
begin
    if wanted is null then
        with recursive ready (name) as (
            (select j.queue from reactor.jobs j
                where j.phase = 'ready' and j.lane is null
                order by j.queue limit 1)
            union all
            select (select j.queue from reactor.jobs j
                where j.phase = 'ready' and j.lane is null and j.queue > ready.name
                order by j.queue limit 1)
            from ready where ready.name is not null
        ), lined (name) as (
            (select l.queue from reactor.lines l order by l.queue limit 1)
            union all
            select (select l.queue from reactor.lines l where l.queue > lined.name order by l.queue limit 1)
            from lined where lined.name is not null
        ), arrived (name) as (
            (select a.queue from reactor.arrivals a order by a.queue limit 1)
            union all
            select (select a.queue from reactor.arrivals a where a.queue > arrived.name order by a.queue limit 1)
            from arrived where arrived.name is not null
        )
        select array_agg(q.name) into wanted
        from (select r.name from ready r union select l.name from lined l union select a.name from arrived a) q
        where q.name is not null;
    end if;
    -- An estimate, since nothing is locked yet. What is full now causes a notification when it has room again.
    select array_agg(l.queue), array_agg(l.job_type),
        coalesce(array_agg(l.job_type) filter (where l.queue = ''), '{}')
    into full_queue, full_type, full_types
    from (
        select array_agg(l.queue order by l.queue, l.job_type) as queues,
            array_agg(l.job_type order by l.queue, l.job_type) as types,
            array_agg(l.lane order by l.queue, l.job_type) as lanes
        from reactor.limits l
        where l.lane = '' and (l.queue = '' or is_any or l.queue = any (wanted))
            and (l.job_type = '' or l.job_type = any (types))
    ) w
    cross join lateral reactor.room(w.queues, w.types, w.lanes) r
    cross join lateral (select w.queues[r.n] as queue, w.types[r.n] as job_type) l
    where r.free <= 0;

    select exists (select from reactor.arrivals), exists (select from reactor.departures),
        exists (select from reactor.lines l
            where l.opens_at < 'infinity' and l.opens_at <= statement_timestamp())
    into any_arrived, any_departed, any_due;
    with kind as materialized (
        select w.queue, t.job_type, t.quota,
            q.queue is null and k.queue is null and t.job_type <> all (full_types) as is_open
        from unnest(wanted) w (queue)
        cross join unnest(types, quotas) t (job_type, quota)
        left join unnest(full_queue, full_type) q (queue, job_type) on q.queue = w.queue and q.job_type = ''
        left join unnest(full_queue, full_type) k (queue, job_type)
            on k.queue = w.queue and k.job_type = t.job_type
    )
    select array_agg(k.queue), array_agg(k.job_type), array_agg(k.quota), array_agg(k.is_plain), array_agg(k.is_open)
    into open_kinds.queue, open_kinds.job_type, open_kinds.quota, open_kinds.is_plain, open_kinds.is_open
    from (
        select o.queue, o.job_type, o.quota, o.is_open,
            not (n.has_news or l.priority is not null or exists (
                select from reactor.limits r
                where r.queue in ('', o.queue) and r.job_type in ('', o.job_type) and r.lane = '')) as is_plain
        from kind o
        left join lateral (
            select j.priority, j.id from reactor.jobs j
            where j.phase = 'ready' and j.lane is null and j.queue = o.queue and j.job_type = o.job_type
            order by j.priority, j.id limit 1) j on o.is_open
        left join lateral (
            select l.priority from reactor.lines l
            where l.opens_at is null and l.queue = o.queue and l.job_type = o.job_type
            order by l.priority, l.turn limit 1) l on o.is_open
        cross join lateral (
            select any_arrived and exists (
                    select from reactor.arrivals a where a.queue = o.queue and a.job_type = o.job_type)
                or o.is_open and (any_departed and exists (
                    select from reactor.departures d
                    where d.queue in ('', o.queue) and d.job_type in ('', o.job_type))
                or any_due and exists (
                    select from reactor.lines c
                    where c.queue = o.queue and c.job_type = o.job_type and c.opens_at < 'infinity'
                        and c.opens_at <= statement_timestamp())) as has_news) n
        where (j.id is not null or l.priority is not null or n.has_news)
            and not exists (select from reactor.queues q where q.name = o.queue and q.paused)
        order by n.has_news desc, least(j.priority, l.priority),
            row_number() over (partition by o.queue, least(j.priority, l.priority) order by j.id),
            hashtext(o.queue || (select random()::text))
        limit batch
    ) k;
end
$$;
comment on function reactor.open_kinds is 'The kinds with ready jobs that limits on whole queues and types leave open.';
