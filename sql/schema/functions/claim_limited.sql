-- Claims where some of the ready jobs have limits or lanes (functions/limits.sql). reactor.claim calls this only then.

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
                    where s.queue = l.queue and s.job_type = l.job_type and s.lane = ''
                        and s.paid_until > clock_timestamp() + (l.burst - 1) * l.every)) as is_full
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
            where l.opens_at < 'infinity' and l.opens_at <= (select clock_timestamp()))
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
                        and c.opens_at <= (select clock_timestamp()))) as has_news) n
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

-- What limits and slots allow these lines: how many more jobs (NULL: any number), and which of these numbers apply to
-- each line, eight for each and 0 where there are fewer.
create or replace function reactor.line_buckets(
    queues text[], types text[], lanes text[], slot_queues text[], slots int[],
    out free int[], out line_buckets int[])
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off as $$
declare
    line int[];
    limit_queue text[];
    limit_type text[];
    limit_lane text[];
    limit_number int[];
begin
    line_buckets := array_fill(0, array[8 * cardinality(queues)]);
    select array_agg(r.line), array_agg(r.queue), array_agg(r.job_type), array_agg(r.lane), array_agg(r.number)
    into line, limit_queue, limit_type, limit_lane, limit_number
    from (
        select r.*, dense_rank() over (order by r.queue, r.job_type, r.lane)::int as number
        from (
            select l.n::int as line, r.queue, r.job_type, r.lane
            from unnest(queues, types, lanes) with ordinality l (queue, job_type, lane, n)
            cross join lateral reactor.limits_of(l.queue, l.job_type, l.lane) r
            union all
            -- Slots: a limit of the caller, with a lane that no other has.
            select l.n::int, l.queue, '', null
            from unnest(queues) with ordinality l (queue, n)
            join unnest(slot_queues, slots) s (queue, n) on s.queue = l.queue and s.n is not null
        ) r
    ) r;
    if line is null then
        return;
    end if;
    select array_agg(coalesce(r.free, s.n) order by b.number) into free
    from (
        select array_agg(d.queue order by d.number) as queues, array_agg(d.job_type order by d.number) as types,
            array_agg(d.lane order by d.number) as lanes
        from (select distinct u.queue, u.job_type, u.lane, u.number
            from unnest(limit_queue, limit_type, limit_lane, limit_number) u (queue, job_type, lane, number)) d
    ) d
    cross join lateral unnest(d.queues, d.lanes) with ordinality b (queue, lane, number)
    left join reactor.room(d.queues, d.types, d.lanes) r on r.n = b.number
    left join unnest(slot_queues, slots) s (queue, n) on b.lane is null and s.queue = b.queue;
    for i in 1 .. cardinality(line) loop
        for b in (line[i] - 1) * 8 + 1 .. line[i] * 8 loop
            if line_buckets[b] = 0 then
                line_buckets[b] := limit_number[i];
                exit;
            end if;
        end loop;
    end loop;
end
$$;
comment on function reactor.line_buckets is 'How many more jobs the limits of lines allow.';

-- After a claim has looked at these lines: those that were served (by their places in the arrays) go to the end, those
-- that may not be served now are closed, and empty ones are deleted. Only those of the kinds that it has locked,
-- `our_queues` and `our_types`: others may have got lines since it looked at them, and writing those could deadlock
-- with another claim. `changed`: any was closed or deleted; `was_full`: any was closed that was not served.
create or replace function reactor.leave_lines(
    queues text[], types text[], lanes text[], priorities smallint[], served int[], our_queues text[],
    our_types text[], out changed boolean, out was_full boolean)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    now_at timestamptz := clock_timestamp();
begin
    with line as materialized (
        select l.queue, l.job_type, l.lane, l.priority, l.n,
            (select max(s.place) from unnest(served) with ordinality s (line, place) where s.line = l.n) as place,
            exists (
                select from reactor.jobs j
                where j.phase = 'ready' and j.lane is not null and j.queue = l.queue and j.job_type = l.job_type
                    and j.lane = l.lane and j.priority = l.priority) as has_more
        from unnest(queues, types, lanes, priorities) with ordinality l (queue, job_type, lane, priority, n)
        where l.lane is not null
    ), rule as materialized (
        select array_agg(l.n) as line, array_agg(f.queue) as queues, array_agg(f.job_type) as types,
            array_agg(f.lane) as lanes
        from line l cross join lateral reactor.limits_of(l.queue, l.job_type, l.lane) f
        where l.has_more and f.lane <> ''
    ), full_line as materialized (
        select r.line[o.n] as n, max(o.opens_at) as opens_at
        from rule r cross join lateral reactor.room(r.queues, r.types, r.lanes) o
        where o.free <= 0 group by 1
    ), emptied as (
        delete from reactor.lines d using line l
        where not l.has_more
            and d.queue = l.queue and d.job_type = l.job_type and d.lane = l.lane and d.priority = l.priority
        returning true
    ), moved as (
        update reactor.lines u set
            turn = case when l.place is null then u.turn
                else now_at + l.place * interval '1 microsecond' end,
            opens_at = l.opens_at
        from (select l.*, f.opens_at from line l left join full_line f on f.n = l.n) l
        where l.has_more and (l.place is not null or l.opens_at is not null)
            and u.queue = l.queue and u.job_type = l.job_type and u.lane = l.lane and u.priority = l.priority
        returning u.opens_at, l.place
    )
    select exists (select from emptied) or exists (select from moved m where m.opens_at is not null),
        exists (select from moved m where m.opens_at is not null and m.place is null)
    into changed, was_full;
    -- The turn of the jobs without a lane.
    insert into reactor.lines as u (queue, job_type, lane, priority, turn, opens_at)
    select l.queue, l.job_type, '', 0, now_at, 'infinity'
    from unnest(queues, types, lanes) with ordinality l (queue, job_type, lane, n)
    where l.lane is null and l.n = any (served)
        and (l.queue, l.job_type) in (select o.queue, o.job_type from unnest(our_queues, our_types) o (queue, job_type))
        and exists (
            select from reactor.lines o where o.queue = l.queue and o.job_type = l.job_type and o.lane > '')
    on conflict (queue, job_type, lane, priority) do update set turn = excluded.turn;
end
$$;
comment on function reactor.leave_lines is 'Moves lines that were served to the end, and closes those that must wait.';

-- As reactor.claim, which has checked that the worker is alive. `slots`: how many jobs each of the queues may get.
-- `later`: there is something that the next claim has to do soon.
create or replace function reactor.claim_limited(
    worker_id uuid, pod text, batch int, queues text[], types text[], quotas int[], slots int[], random_part bytea,
    later boolean)
    returns setof reactor.claimed
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    kind_queue text[];
    kind_type text[];
    kind_quota int[];
    kind_is_plain boolean[];
    kind_is_open boolean[];
    kind_is_locked boolean[];
    ours_queue text[];  -- the locked ones
    ours_type text[];
    -- Lines: those of lanes, and one for the jobs of each kind that have no lane.
    line_kind int[];
    line_lane text[];
    line_priority smallint[];
    line_queue text[];
    line_type text[];
    line_buckets int[];    -- eight for each line: the limits that apply to it; 0: no more
    -- Limits that apply to the lines, and the slots of queues.
    bucket_free int[];     -- NULL: any number
    -- Jobs, in the order in which they may be taken.
    job_ids bigint[];
    job_lines int[];
    job_priorities smallint[];
    job_is_last boolean[];  -- of those that were read of its line
    chosen bigint[];
    chosen_lines int[];
    ids bigint[];
    scopes text[];
    others bigint[];
    taken bigint[];
    skipped bigint[] := '{}';
    parked_some boolean;
    left_some boolean;
    remaining int := batch;
    per_line int;
    window_size int;  -- how many lines of a kind to look at: more, while they turn out to be closed
    bucket int;
    fits boolean;
    has_more boolean;
    opened_others boolean := false;
    closed_some boolean;
    was_full boolean;
    again boolean := false;
    has_left boolean := false;  -- a job that limits allow, behind a full batch
    opens_in float8;
begin
    for round in 1 .. 8 loop
        again := false;
        window_size := greatest(
            remaining + 1, case when round > 1 then least(1000, 8 * 4 ^ (round - 1)) else 0 end::int);
        parked_some := false;
        closed_some := false;
        was_full := false;
        others := '{}';
        select k.queue, k.job_type, k.quota, k.is_plain, k.is_open
        into kind_queue, kind_type, kind_quota, kind_is_plain, kind_is_open
        from reactor.open_kinds(queues, types, quotas, greatest(batch, 100)) k;
        exit when kind_queue is null;

        select array_agg(k.queue), array_agg(k.job_type) into ours_queue, ours_type
        from unnest(kind_queue, kind_type, kind_is_plain) k (queue, job_type, is_plain) where not k.is_plain;
        if ours_queue is not null then
            kind_is_locked := reactor.lock_limits(ours_queue, ours_type);
            -- Another claim has the locks, for a millisecond or two. If there is nothing else to do, look again soon:
            -- it may have taken everything by then.
            if true <> all (kind_is_locked) and true <> all (kind_is_plain) and round <= 3 then
                perform pg_sleep(0.001 + 0.002 * random());
                continue;
            end if;
            later := later or false = any (kind_is_locked);
            select coalesce(array_agg(k.queue), '{}'), coalesce(array_agg(k.job_type), '{}')
            into ours_queue, ours_type
            from unnest(ours_queue, ours_type, kind_is_locked) k (queue, job_type, is_locked) where k.is_locked;
            -- From here on, new statements see what was committed before the locks.
            -- Not `... or opened_others`: a plan for the value true contains no call.
            if reactor.take_news(ours_queue, ours_type) then
                opened_others := true;
            end if;
            if exists (select from unnest(ours_queue, ours_type) k (queue, job_type)
                join reactor.limits l on l.queue in ('', k.queue) and l.job_type in ('', k.job_type)
                where l.max_running is not null
                    and (l.seen_at is null or l.seen_at > clock_timestamp() - interval '10 seconds'))
            then
                perform reactor.count_running(ours_queue, ours_type);
            end if;
        end if;

        -- The lines that are next in each kind.
        select array_agg(k.n::int), array_agg(k.queue), array_agg(k.job_type), array_agg(l.lane), array_agg(l.priority)
        into line_kind, line_queue, line_type, line_lane, line_priority
        from unnest(kind_queue, kind_type, kind_is_plain, kind_is_open)
            with ordinality k (queue, job_type, is_plain, is_open, n)
        cross join lateral (
            (select l.lane, l.priority from reactor.lines l
                where l.queue = k.queue and l.job_type = k.job_type and l.opens_at is null and not k.is_plain
                order by l.priority, l.turn limit window_size)
            union all
            select null, null) l
        where k.is_open and (k.is_plain or exists (
            select from unnest(ours_queue, ours_type) o (queue, job_type)
            where o.queue = k.queue and o.job_type = k.job_type));
        exit when line_kind is null;

        -- What limits allow.
        select b.free, b.line_buckets into bucket_free, line_buckets
        from reactor.line_buckets(line_queue, line_type, line_lane, queues, slots) b;

        -- Jobs, in the order in which queues and lines take turns. What was taken in earlier rounds counts.
        per_line := least(remaining + 1, 1 + 2 * remaining / cardinality(line_kind), 1000 * remaining);
        select array_agg(c.id order by c.rank), array_agg(c.line order by c.rank),
            array_agg(c.priority order by c.rank), array_agg(c.is_last order by c.rank)
        into job_ids, job_lines, job_priorities, job_is_last
        from (
            select o.id, o.line, o.priority, o.is_last,
                row_number() over (order by o.priority, o.place, o.shuffled) as rank
            from (
                select c.*, hashtext(c.queue || (select random()::text)) as shuffled,
                    row_number() over (
                        partition by c.queue, c.priority order by c.place_in_line, c.turn, c.id) as place
                from (
                    select k.n::int as line, k.queue, j.id, j.priority, j.n >= per_line as is_last,
                        row_number() over (partition by k.n, j.priority order by j.id) as place_in_line,
                        coalesce((
                            select t.turn from reactor.lines t
                            where t.queue = k.queue and t.job_type = k.job_type
                                and t.lane = coalesce(k.lane, '') and t.priority = coalesce(k.line_priority, 0)),
                            '-infinity') as turn
                    from (
                        select l.*, kind_quota[l.kind] as quota
                        from unnest(line_kind, line_queue, line_type, line_lane, line_priority)
                            with ordinality l (kind, queue, job_type, lane, line_priority, n)) k
                    cross join lateral (
                        select f.id, f.priority, row_number() over (order by f.priority, f.id) as n
                        from (
                            (select j.id, j.priority from reactor.jobs j
                                where k.lane is null and j.phase = 'ready' and j.lane is null
                                    and j.queue = k.queue and j.job_type = k.job_type and j.id <> all (skipped)
                                    and j.attempts < coalesce(j.max_attempts, greatest(k.quota, j.quota), 3)
                                order by j.priority, j.id limit per_line)
                            union all
                            (select j.id, j.priority from reactor.jobs j
                                where k.lane is not null and j.phase = 'ready' and j.lane is not null
                                    and j.queue = k.queue and j.job_type = k.job_type and j.lane = k.lane
                                    and j.priority = k.line_priority and j.id <> all (skipped)
                                    and j.attempts < coalesce(j.max_attempts, greatest(k.quota, j.quota), 3)
                                order by j.id limit per_line)
                        ) f
                    ) j
                ) c
            ) o
        ) c;

        -- The first of them that all limits allow.
        chosen := '{}';
        chosen_lines := '{}';
        has_more := false;
        has_left := has_left and remaining <= 0;
        for n in 1 .. coalesce(cardinality(job_ids), 0) loop
            -- More urgent jobs may follow in a line that was not read to its end.
            exit when has_more and job_priorities[n] > job_priorities[n - 1]
                or cardinality(chosen) >= remaining and (has_left or bucket_free is null);
            fits := true;
            for b in (job_lines[n] - 1) * 8 + 1 .. job_lines[n] * 8 loop
                bucket := line_buckets[b];
                exit when bucket = 0;
                fits := fits and coalesce(bucket_free[bucket] > 0, true);
            end loop;
            if fits and cardinality(chosen) >= remaining then
                has_left := line_buckets[(job_lines[n] - 1) * 8 + 1] > 0;
            elsif fits then
                for b in (job_lines[n] - 1) * 8 + 1 .. job_lines[n] * 8 loop
                    bucket := line_buckets[b];
                    exit when bucket = 0;
                    bucket_free[bucket] := bucket_free[bucket] - 1;
                end loop;
                chosen := chosen || job_ids[n];
                chosen_lines := chosen_lines || job_lines[n];
                has_more := has_more or job_is_last[n];
            end if;
        end loop;

        -- They are not locked yet; other transactions may have locked or changed some.
        taken := '{}';
        if chosen <> '{}' then
            select array_agg(l.id order by c.n), array_agg(l.scope order by c.n) into ids, scopes
            from unnest(chosen) with ordinality c (id, n)
            cross join lateral (
                select j.id, j.scope from reactor.jobs j where j.id = c.id and j.phase = 'ready'
                for no key update skip locked) l;
            others := array(select unnest(chosen) except select unnest(ids));
            later := later or others <> '{}';
            skipped := skipped || others;
            if ids is not null then
                if array_remove(scopes, null) = '{}' then
                    taken := ids;
                else
                    select s.taken, s.parked_some, s.left_some into taken, parked_some, left_some
                    from reactor.take_scopes(ids, scopes, remaining, in_order => true) s;
                    later := later or left_some;
                end if;
                skipped := skipped || ids;
                return query select * from reactor.start_attempts(taken, claim_limited.worker_id, pod, types, quotas,
                    random_part, reactor.charge_limits(taken));
                remaining := remaining - cardinality(taken);
                slots := array(
                    select s.n - (
                        select count(*)::int from reactor.jobs j where j.id = any (taken) and j.queue = s.queue)
                    from unnest(queues, slots) with ordinality s (queue, n, place) order by s.place);
            end if;
        end if;

        -- What is left of the lines.
        if ours_queue <> '{}' and exists (select from reactor.lines) then
            select l.changed, l.was_full into closed_some, was_full
            from reactor.leave_lines(
                line_queue, line_type, line_lane, line_priority, chosen_lines, ours_queue, ours_type) l;
        end if;
        -- Other lines, or jobs behind those that were skipped or parked.
        again := remaining > 0 and (closed_some and cardinality(line_kind) >= window_size or parked_some
            or taken <> '{}' and has_more or others <> '{}');
        -- What was taken starts with the commit, and other claims of these kinds wait for it: the next claim may look
        -- for more. But where lines turned out to be full, further rounds close those that it would look at in vain.
        exit when not was_full and (taken <> '{}' or not again);
    end loop;
    if opened_others then
        perform reactor.notify_jobs();
    end if;
    -- What is behind a full batch, other workers may take.
    if has_left and remaining <= 0 then
        perform reactor.notify_places();
    end if;
    if remaining > 0 or later or 0 = any (bucket_free) then
        opens_in := reactor.next_opening(queues, types);
        return query select null::bigint, case when again then 'again' when later then 'later' else 'limited' end,
            null::jsonb, null::uuid, null::bigint, null, null::smallint, null::text[], null, null::uuid,
            null::int, null::int, opens_in::real, null::timestamptz, null::timestamptz, null::timestamptz;
    end if;
end
$$;
comment on function reactor.claim_limited is 'Claims jobs where limits or lanes have to be looked at.';
