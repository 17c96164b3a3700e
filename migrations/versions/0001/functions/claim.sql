-- Claims: each job goes to exactly one of any number of workers. Claims wait for no lock: what another transaction has
-- locked is skipped. (Functions called from here are PL/pgSQL: SQL functions are planned at each call, which takes a
-- third of a millisecond.)
--
-- A kind is a queue and a job type: within it, jobs_ready has the jobs in the order in which they are claimed.

-- The kinds to claim from, at most `batch`, those with the most urgent jobs first, without paused queues. With `marks`,
-- only kinds that these name (reactor.claim says what they are).
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
    select array_agg(k.queue), array_agg(k.job_type), array_agg(k.quota), array_agg((-32768)::smallint), array_agg(0)
    into ready_kinds.queue, ready_kinds.job_type, ready_kinds.quota, after_priority, after_id
    from (
        select o.queue, t.job_type, t.quota
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

-- Deletes the recent claims of a worker of which it holds nothing any more. One in sixteen claims does this; older rows
-- are left to the sweeper. (By id, because there may be many dead rows while an old snapshot is open.)
create or replace function reactor.forget_claims(worker_id uuid) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    delete from reactor.claims c
    where c.worker_id = forget_claims.worker_id
        and c.id > (select max(l.id) from reactor.claims l where l.worker_id = forget_claims.worker_id) - 1000
        and not exists (
            select from unnest(c.job_ids) i (id) join reactor.jobs j on j.id = i.id
            where j.worker_id = forget_claims.worker_id);
end
$$;
comment on function reactor.forget_claims is 'Deletes claims of a worker of which it holds no job any more.';

-- Starts attempts of these jobs, whose rows the caller has locked. From here on every write to them needs their new
-- attempt_id: the fence. `counted`: those that have a place in a limit.
create or replace function reactor.start_attempts(
    ids bigint[], worker_id uuid, pod text, types text[], quotas int[], random_part bytea,
    counted bigint[] default '{}')
    returns setof reactor.claimed
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    taken_at timestamptz := clock_timestamp();
begin
    if ids = '{}' then
        return;
    end if;
    insert into reactor.claims (worker_id, job_ids) values (start_attempts.worker_id, ids);
    return query
        update reactor.jobs j set
            state = 'running', phase = 'taken', holds_scope = j.scope is not null,
            counted = j.id = any (start_attempts.counted),
            attempt_id = encode(random_part || substring(int8send(j.id) from 2), 'hex')::uuid,
            worker_id = start_attempts.worker_id, locked_by = pod, locked_at = taken_at,
            started_at = coalesce(j.started_at, taken_at), attempts = j.attempts + 1,
            quota = coalesce(j.max_attempts, greatest(t.quota, j.quota), 3), is_current = j.scope is not null,
            parked = false, run_after = null, broken_by = null, finished_at = null, changed_xid = txid_current()
        from unnest(types, quotas) t (job_type, quota)
        where j.id = any (ids) and t.job_type = j.job_type
        returning j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue, j.priority, j.tags, j.scope,
            j.attempt_id, j.attempts, j.quota, j.timeout_seconds, j.created_at, j.started_at, j.locked_at;
end
$$;
comment on function reactor.start_attempts is 'Starts attempts of jobs that the caller has locked.';

-- Claims up to `batch` ready jobs of these types (with the attempts that their handlers registered) and queues (NULL:
-- all). A last row without an id says that there may be more: its job_type is `again` if the next claim may come at
-- once, `later` if other transactions must end first, or `limited` if limits allow more in timeout_seconds (which the
-- other two may have too).
--
-- `slots`: how many jobs of each of the queues to claim at most.
--
-- `marks`: where to start in each kind, as [{"queue", "job_type", "priority", "id"}, ...]. While an old snapshot is
-- open, vacuum can't remove the index entries of claimed jobs, and each claim walks past all of them: a millisecond for
-- a thousand. A worker that notices claims with marks in between: the first job that it last found in each kind.
create or replace function reactor.claim(
    worker_id uuid, batch int, queues text[], types text[], quotas int[], marks jsonb default null,
    slots int[] default null)
    returns setof reactor.claimed
-- Settings: JIT compilation takes longer (30 ms) than any claim, and planning each time as long as claiming a single
-- job. Cached plans must suit a growing table: one made while the table was small would read all of it after a sudden
-- insert of 100,000 jobs (160 ms a claim instead of 9), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    pod text;
    -- One random number for the whole batch: where PostgreSQL was built without OpenSSL, each one opens /dev/urandom (5
    -- µs of a job's 45). Followed by the job's id it is unique to the attempt: 66 random bits, and a valid UUID of
    -- version 4.
    random_part bytea := substring(uuid_send(gen_random_uuid()) for 9);
    taken_at timestamptz;
    has_freed_scopes boolean;
    has_unresolved boolean;
    next_in_seconds float8;
    any_paused boolean;
    has_limits boolean;  -- or lanes
    may_open boolean;
    is_plain boolean[];
    opens_in float8;
    is_empty boolean;
    is_only_kind boolean;  -- nothing but this kind is ready:
    only_queue text;
    only_type text;
    paused text[] := '{}';
    kind_queue text[];
    kind_type text[];
    kind_quota int[];
    kind_after_priority smallint[];
    kind_after_id bigint[];
    kind_free int[];
    kind_count int[];
    ids bigint[];
    scopes text[];
    taken bigint[];
    parked_some boolean;
    left_some boolean;
    is_full boolean;  -- the window is: there may be more behind it
    n int;
    remaining int := batch;
    window_size int := batch;
    again boolean := false;
    is_idle boolean := true;  -- nothing was taken or parked
    later boolean := false;
    setting text;
begin
    setting := set_config('reactor.notify_now', 'on', true);  -- nothing but the commit follows
    -- The worker is alive by the database's clock, and draining is off. And the first kind, if it is the only one that
    -- is ready: most claims need to know no more.
    select w.pod, exists (select from reactor.freed_scopes),
        exists (select from reactor.unresolved) or exists (select from reactor.retries),
        exists (select from reactor.queues q where q.paused), exists (select from reactor.limits)
            or exists (select from reactor.lines) or exists (select from reactor.arrivals),
        first.queue, first.job_type,
        not exists (
            select from reactor.jobs j
            where j.phase = 'ready' and j.lane is null
                and (j.queue, j.job_type) > (first.queue, first.job_type))
    into pod, has_freed_scopes, has_unresolved, any_paused, has_limits, only_queue, only_type, is_only_kind
    from reactor.workers w
    left join lateral (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'ready' and j.lane is null and claim.marks is null
        order by j.queue, j.job_type limit 1) first on true
    where w.id = claim.worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s);
    if not found then
        return;
    end if;
    is_empty := only_queue is null and marks is null;
    is_only_kind := is_only_kind and not any_paused and not is_empty and marks is null and slots is null;
    if get_byte(random_part, 0) < 16 then
        perform reactor.forget_claims(claim.worker_id);
    end if;
    -- What ended jobs have left for later.
    if has_unresolved or has_freed_scopes then
        if has_unresolved then
            select r.next_in_seconds into next_in_seconds from reactor.resolve_more(500) r;
            later := next_in_seconds is not null;
        end if;
        later := reactor.free_more_scopes() or later;
        is_empty := false;
        is_only_kind := false;
    end if;

    if has_limits then
        -- Does this claim have to look at them? Lines may be served, there are news, or ready jobs may have limits.
        -- (Marks are for claims that do not.)
        may_open := true;
        marks := null;
        has_limits := exists (select from reactor.lines l
                where l.opens_at is null and l.job_type = any (types) and (queues is null or l.queue = any (queues)))
            or exists (select from reactor.lines l
                where l.opens_at < 'infinity' and l.opens_at <= (select clock_timestamp())
                    and l.job_type = any (types) and (queues is null or l.queue = any (queues)))
            or exists (select from reactor.arrivals a
                where a.job_type = any (types) and (queues is null or a.queue = any (queues)))
            or exists (select from reactor.departures d
                where (d.job_type = '' or d.job_type = any (types))
                    and (d.queue = '' or queues is null or d.queue = any (queues)))
            or case when is_only_kind
                then exists (select from reactor.limits l
                    where l.lane = '' and l.queue in ('', only_queue) and l.job_type in ('', only_type))
                else not is_empty and exists (select from reactor.limits l
                    where l.lane = '' and (l.job_type = '' or l.job_type = any (types))
                        and (l.queue = '' or queues is null or l.queue = any (queues)))
                end;
        is_empty := is_empty and not has_limits;
        is_only_kind := is_only_kind and not has_limits;
    end if;
    if any_paused then
        paused := array(select q.name from reactor.queues q where q.paused);
    end if;
    for round in 1 .. 6 loop
        again := false;
        is_full := false;
        exit when is_empty;
        if is_only_kind then
            exit when only_queue <> all (queues) or only_type <> all (types);
            kind_queue := array[only_queue];
            kind_type := array[only_type];
            kind_quota := quotas[array_position(types, only_type) : array_position(types, only_type)];
            kind_after_priority := array[-32768];
            kind_after_id := array[0];
            kind_count := array[window_size];
        else
            if has_limits then
                select k.queue, k.job_type, k.quota, k.is_plain into kind_queue, kind_type, kind_quota, is_plain
                from reactor.open_kinds(queues, types, quotas, window_size) k;
                exit when kind_queue is null;
                if false = any (is_plain) then
                    -- In later rounds, the next claim will find them.
                    later := later or round > 1;
                    exit when round > 1;
                    return query select * from reactor.claim_limited(
                        claim.worker_id, pod, batch, queues, types, quotas, slots, random_part);
                    return;
                end if;
                kind_after_priority := array_fill((-32768)::smallint, array[cardinality(kind_queue)]);
                kind_after_id := array_fill(0::bigint, array[cardinality(kind_queue)]);
            else
                select k.queue, k.job_type, k.quota, k.after_priority, k.after_id
                into kind_queue, kind_type, kind_quota, kind_after_priority, kind_after_id
                from reactor.ready_kinds(queues, paused, types, quotas, window_size, marks) k;
                exit when kind_queue is null;
            end if;
            if slots is not null then
                kind_free := array(select slots[array_position(queues, k.queue)]
                    from unnest(kind_queue) with ordinality k (queue, n) order by k.n);
            end if;
            if cardinality(kind_queue) = 1 then
                kind_count := array[least(window_size, kind_free[1])];
            else
                kind_count := reactor.share_batch(
                    kind_queue, kind_type, kind_free, kind_after_priority, kind_after_id, window_size);
                -- If other transactions have locked some of them, jobs of other kinds come next.
                is_full := (select sum(c.n) from unnest(kind_count) c (n)) >= window_size;
            end if;
        end if;

        -- The short way, for batches without scopes: the rows that were locked are written where they are.
        if round = 1 then
            taken_at := clock_timestamp();
            return query
                with picked as materialized (
                    select l.location, l.id, l.scope, k.quota
                    from unnest(kind_queue, kind_type, kind_quota, kind_count, kind_after_priority, kind_after_id)
                        k (queue, job_type, quota, n, priority, id)
                    cross join lateral (
                        select j.ctid as location, j.id, j.scope from reactor.jobs j
                        where j.phase = 'ready' and j.lane is null
                            and j.queue = k.queue and j.job_type = k.job_type
                            and (j.priority, j.id) > (k.priority, k.id)
                            and j.attempts < coalesce(j.max_attempts, greatest(k.quota, j.quota), 3)
                        order by j.priority, j.id limit k.n
                        for no key update skip locked) l
                ), recorded as (
                    insert into reactor.claims (worker_id, job_ids)
                    select claim.worker_id, p.ids
                    from (select array_agg(p.id) as ids, count(p.scope) as scoped from picked p) p
                    where p.ids is not null and p.scoped = 0
                )
                update reactor.jobs j set
                    state = 'running', phase = 'taken', counted = false,
                    attempt_id = encode(random_part || substring(int8send(j.id) from 2), 'hex')::uuid,
                    worker_id = claim.worker_id, locked_by = pod, locked_at = taken_at,
                    started_at = coalesce(j.started_at, taken_at), attempts = j.attempts + 1,
                    quota = coalesce(j.max_attempts, greatest(p.quota, j.quota), 3),
                    broken_by = null, finished_at = null, changed_xid = txid_current()
                from picked p
                where j.ctid = p.location and not exists (select from picked s where s.scope is not null)
                returning j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue, j.priority, j.tags, j.scope,
                    j.attempt_id, j.attempts, j.quota, j.timeout_seconds, j.created_at, j.started_at, j.locked_at;
            get diagnostics n = row_count;
            remaining := remaining - n;
        end if;

        -- The long way.
        if round > 1 or n = 0 then
            select array_agg(l.id order by l.priority, l.id), array_agg(l.scope order by l.priority, l.id)
            into ids, scopes
            from unnest(kind_queue, kind_type, kind_quota, kind_count, kind_after_priority, kind_after_id)
                k (queue, job_type, quota, n, priority, id)
            cross join lateral (
                select j.id, j.scope, j.priority from reactor.jobs j
                where j.phase = 'ready' and j.lane is null
                    and j.queue = k.queue and j.job_type = k.job_type and (j.priority, j.id) > (k.priority, k.id)
                    and j.attempts < coalesce(j.max_attempts, greatest(k.quota, j.quota), 3)
                order by j.priority, j.id limit k.n
                for no key update skip locked) l;
            if ids is not null then
                select s.taken, s.parked_some, s.left_some into taken, parked_some, left_some
                from reactor.take_scopes(ids, scopes, remaining, in_order => true) s;
                return query select * from reactor.start_attempts(
                    taken, claim.worker_id, pod, types, quotas, random_part);
                remaining := remaining - cardinality(taken);
                later := later or left_some;
                is_full := is_full or parked_some or cardinality(ids) >= window_size;
                -- Other claims have skipped what this one locked and did not take.
                if remaining <= 0 and cardinality(ids) > cardinality(taken) then
                    perform reactor.notify_jobs();
                end if;
            end if;
        end if;
        -- What is locked, or waits for a busy scope, must not use up the batch: continue behind it. Parked jobs have
        -- left the index by then; a growing window reaches past the others.
        is_idle := is_idle and n = 0 and not coalesce(parked_some or taken <> '{}', false);
        again := is_full and remaining > 0;
        exit when not again;
        window_size := least(1000, greatest(100, 2 * window_size));
    end loop;
    if may_open and remaining > 0 then
        opens_in := reactor.next_opening(queues, types);
    end if;
    if again or later or opens_in is not null then
        return query select null::bigint,
            case when again and not is_idle then 'again' when again or later then 'later' else 'limited' end,
            null::jsonb, null::uuid, null::bigint, null, null::smallint, null::text[], null, null::uuid, null::int,
            null::int, opens_in::real, null::timestamptz, null::timestamptz, null::timestamptz;
    end if;
end
$$;
comment on function reactor.claim is
    'Claims up to `batch` due jobs for a live worker; returns what handlers need. '
    'A last row without an id says when to claim again: '
    'job_type again (now), later (soon) or limited (in timeout_seconds).';

-- Claims one job. No row if it can't be claimed now, and then nothing has changed.
create or replace function reactor.claim_job(job_id bigint, worker_id uuid, quota int) returns setof reactor.claimed
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    pod text;
    job record;
    taken bigint[];
begin
    select w.pod into pod from reactor.workers w
    where w.id = claim_job.worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s);
    if not found then
        return;
    end if;
    select j.id, j.scope, j.job_type, j.queue, j.lane into job from reactor.jobs j
    where j.id = claim_job.job_id and j.state = 'pending' and j.job_type is not null
        and (j.run_after is null or j.run_after <= clock_timestamp())
        and j.attempts < coalesce(j.max_attempts, greatest(claim_job.quota, j.quota), 3)
        and not exists (select from reactor.queues q where q.name = j.queue and q.paused)
    for no key update skip locked;
    if not found then
        return;
    end if;
    if exists (select from reactor.limits) then
        if not (reactor.lock_limits(array[job.queue], array[job.job_type]))[1] then
            return;
        end if;
        perform reactor.count_running(array[job.queue], array[job.job_type]);
        if exists (
            select from reactor.limits_of(job.queue, job.job_type, job.lane) l
            cross join lateral reactor.room(array[l.queue], array[l.job_type], array[l.lane]) r where r.free <= 0)
        then
            return;
        end if;
    end if;
    select t.taken into taken
    from reactor.take_scopes(array[job.id], array[job.scope], 1, in_order => false) t;
    return query select * from reactor.start_attempts(taken, claim_job.worker_id, pod, array[job.job_type],
        array[claim_job.quota], substring(uuid_send(gen_random_uuid()) for 9), reactor.charge_limits(taken));
end
$$;
comment on function reactor.claim_job is 'Claims one job for a live worker, if it can run now.';
