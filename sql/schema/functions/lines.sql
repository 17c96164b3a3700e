-- Lines: the jobs with a lane that differ only in their id, as claims see them.
--
-- Jobs with a lane wait in lines (reactor.lines), which take turns. A line is closed while the limit of its lane is
-- full, or its rate is used up, and is deleted when it is empty. So claims walk neither the jobs behind a limit nor the
-- lines that may not run. A transaction that makes jobs ready, or ends one, only inserts news, without a lock:
-- reactor.arrivals and reactor.departures. Claims take the news. None is lost, because a claim that closes a line, or
-- finds it empty, has locked its kind first and looks in a new statement: that shows what was committed before, and
-- news of what is committed later are taken by a later claim, under the same lock.

-- Takes the news about these kinds, which the caller has locked: inserts lines, and opens those that may be served
-- again. A limit may have lines of other kinds, too; its news are taken if its lock is among `locked`. A claim that
-- began before the limit was created may be writing those lines. They are not waited for: news of them are left for
-- claims of their kinds. `opened_others`: there is something to do for such claims; `left_some`: there may be more news
-- of the caller's kinds.
create or replace function reactor.take_news(
    queues text[], types text[], locked int[], taken int default 2000, out opened_others boolean, out left_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
begin
    with arrived as (
        delete from reactor.arrivals a where a.ctid = any (array(
            select n.ctid from unnest(queues, types) k (queue, job_type)
            join reactor.arrivals n on n.queue = k.queue and n.job_type = k.job_type limit take_news.taken))
        returning a.queue, a.job_type, a.lane, a.priority
    ), added as (
        insert into reactor.lines (queue, job_type, lane, priority, turn)
        select distinct a.queue, a.job_type, a.lane, a.priority, clock_timestamp() from arrived a
        on conflict (queue, job_type, lane, priority) do nothing
    )
    select false, count(*) >= take_news.taken into opened_others, left_some from arrived;

    if exists (select from reactor.departures) then
        with departed as (
            delete from reactor.departures d where d.ctid = any (array(
                select n.ctid from unnest(queues, types) k (queue, job_type)
                join reactor.departures n on n.queue in ('', k.queue) and n.job_type in ('', k.job_type)
                where reactor.limit_bucket(n.queue, n.job_type) = any (locked)
                limit take_news.taken))
            returning d.queue, d.job_type, d.lane
        ), closed as materialized (
            select distinct l.queue, l.job_type, l.lane, l.priority
            from (select distinct d.queue, d.job_type, d.lane from departed d) d
            join reactor.lines l on d.queue in ('', l.queue) and d.job_type in ('', l.job_type)
                and l.lane = d.lane and l.opens_at is not null
            where d.lane <> '*'
            union
            select l.queue, l.job_type, l.lane, l.priority
            from departed d
            join reactor.lines l on d.queue in ('', l.queue) and d.job_type in ('', l.job_type)
                and l.lane <> '' and l.opens_at is not null
            where d.lane = '*'
        ), ours as materialized (
            select l.queue, l.job_type, l.lane, l.priority
            from closed c
            join reactor.lines l
                on l.queue = c.queue and l.job_type = c.job_type and l.lane = c.lane and l.priority = c.priority
            for no key update of l skip locked
        ), opened as (
            update reactor.lines l set opens_at = null
            from ours o
            where l.queue = o.queue and l.job_type = o.job_type and l.lane = o.lane and l.priority = o.priority
            returning l.queue, l.job_type
        ), put_off as (
            insert into reactor.departures (queue, job_type, lane)
            select c.queue, c.job_type, c.lane from closed c
            except
            select o.queue, o.job_type, o.lane from ours o
            returning queue
        )
        select exists (select from put_off) or exists (
            select from opened o where not exists (
                select from unnest(queues, types) k (queue, job_type)
                where k.queue = o.queue and k.job_type = o.job_type)),
            left_some or (select count(*) >= take_news.taken from departed)
        into opened_others, left_some;
    end if;

    update reactor.lines l set opens_at = null
    where l.opens_at <= statement_timestamp() and l.opens_at < 'infinity'
        and (l.queue, l.job_type) in (select k.queue, k.job_type from unnest(queues, types) k (queue, job_type));
end
$$;
comment on function reactor.take_news is 'Opens lines whose jobs became ready or may run again.';

-- Whether a claim from these queues and types may find lines that can be served.
create or replace function reactor.may_serve_lines(wanted text[], types text[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return exists (select from reactor.lines l
            where l.opens_at is null and l.job_type = any (types) and (wanted is null or l.queue = any (wanted)))
        or exists (select from reactor.lines l
            where l.opens_at < 'infinity' and l.opens_at <= statement_timestamp()
                and l.job_type = any (types) and (wanted is null or l.queue = any (wanted)))
        or exists (select from reactor.arrivals a
            where a.job_type = any (types) and (wanted is null or a.queue = any (wanted)))
        or exists (select from reactor.departures d
            where (d.job_type = '' or d.job_type = any (types))
                and (d.queue = '' or wanted is null or d.queue = any (wanted)));
end
$$;
comment on function reactor.may_serve_lines is
    'Whether there are open lines, or news of lines, of these queues and types.';

-- Whether jobs with a lane wait in these queues and types.
create or replace function reactor.has_lines(wanted text[], types text[]) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return exists (select from reactor.lines l
        where l.job_type = any (types) and (wanted is null or l.queue = any (wanted)) and l.lane <> '');
end
$$;
comment on function reactor.has_lines is 'Whether jobs with a lane wait in these queues and types.';

-- In how many seconds a claim from these queues and types may find more; NULL: nothing waits for a time. (What the
-- caller could have served and did not, because its queue is paused or full, waits for a notification.)
create or replace function reactor.next_opening(wanted text[], types text[]) returns float8
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    next_at timestamptz;
    rate_queues text[];
    rate_types text[];
    rate_lanes text[];
begin
    select l.opens_at into next_at from reactor.lines l
    where l.opens_at > statement_timestamp() and l.opens_at < 'infinity'
        and l.job_type = any (types) and (wanted is null or l.queue = any (wanted))
    order by l.opens_at limit 1;
    select array_agg(s.queue), array_agg(s.job_type), array_agg(s.lane) into rate_queues, rate_types, rate_lanes
    from reactor.rates s
    where s.lane = '' and s.paid_until > statement_timestamp()
        and (s.job_type = '' or s.job_type = any (types))
        and (s.queue = '' or wanted is null or s.queue = any (wanted));
    if rate_queues is not null then
        next_at := least(next_at, (
            select min(r.opens_at) from reactor.room(rate_queues, rate_types, rate_lanes) r
            where r.opens_at > statement_timestamp() and r.opens_at < 'infinity'));
    end if;
    return case when next_at is not null then greatest(0, extract(epoch from next_at - clock_timestamp())) end;
end
$$;
comment on function reactor.next_opening is 'In how many seconds a limit by rate allows more jobs.';

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
-- that may not be served now are closed, and empty ones are deleted. Those with a lane are of kinds that the claim has
-- locked, `our_queues` and `our_types`. The jobs without a lane may be of other kinds, whose turn is not written: two
-- claims could deadlock. `changed`: any was closed or deleted; `was_full`: any was closed that was not served.
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
