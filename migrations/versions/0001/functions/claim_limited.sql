-- Claims where some of the ready jobs have limits or lanes (limits.sql, lines.sql). reactor.claim calls this only then.

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
    locked int[] := '{}';  -- locks of kinds and limits
    locked_now int[];
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
    most_kinds int := greatest(batch, 100);
    window_size int;  -- how many lines of a kind to look at: more, while they turn out to be closed
    bucket int;
    fits boolean;
    has_more boolean;
    opened_others boolean := false;
    opened_now boolean;
    left_news boolean;
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
        left_news := false;
        others := '{}';
        select k.queue, k.job_type, k.quota, k.is_plain, k.is_open
        into kind_queue, kind_type, kind_quota, kind_is_plain, kind_is_open
        from reactor.open_kinds(queues, types, quotas, most_kinds) k;
        exit when kind_queue is null;

        select array_agg(k.queue), array_agg(k.job_type) into ours_queue, ours_type
        from unnest(kind_queue, kind_type, kind_is_plain) k (queue, job_type, is_plain) where not k.is_plain;
        if ours_queue is not null then
            select l.is_locked, l.locked into kind_is_locked, locked_now
            from reactor.lock_limits(ours_queue, ours_type) l;
            locked := locked || locked_now;
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
            select n.opened_others, n.left_some into opened_now, left_news
            from reactor.take_news(ours_queue, ours_type, locked) n;
            opened_others := opened_others or opened_now;
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
                    random_part, reactor.charge_limits(taken, locked));
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
            or taken <> '{}' and has_more or others <> '{}' or left_news);
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
        later := later or cardinality(kind_queue) >= most_kinds;  -- there may be others
        return query select null::bigint, case when again then 'again' when later then 'later' else 'limited' end,
            null::jsonb, null::uuid, null::bigint, null, null::smallint, null::text[], null, null::uuid,
            null::int, null::int, opens_in::real, null::timestamptz, null::timestamptz, null::timestamptz, null;
    end if;
end
$$;
comment on function reactor.claim_limited is 'Claims jobs where limits or lanes have to be looked at.';
