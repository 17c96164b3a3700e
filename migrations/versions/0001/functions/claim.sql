-- Claims: each job goes to exactly one of any number of workers. Claims wait for no lock: what another transaction has
-- locked is skipped. (Functions called from here are PL/pgSQL: SQL functions are planned at each call, which takes a
-- third of a millisecond.)

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
            select from reactor.jobs j where j.id = any (c.job_ids) and j.worker_id = forget_claims.worker_id);
end
$$;
comment on function reactor.forget_claims is 'Deletes claims of a worker of which it holds no job any more.';

-- Starts attempts of these jobs, whose rows the caller has locked. From here on every write to them needs their new
-- attempt_id: the fence. `counted`: those that have a place in a limit. (One whose abandoned handler still runs keeps
-- the place that it has.)
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
            counted = j.id = any (start_attempts.counted) or j.counted and j.worker_id is not null,
            attempt_id = encode(random_part || substring(int8send(j.id) from 2), 'hex')::uuid,
            worker_id = start_attempts.worker_id, locked_by = pod, locked_at = taken_at,
            started_at = coalesce(j.started_at, taken_at), attempts = j.attempts + 1,
            quota = coalesce(j.max_attempts, greatest(t.quota, j.quota), 3), is_current = j.scope is not null,
            parked = false, ready_at = coalesce(j.run_after, j.ready_at), run_after = null, broken_by = null,
            finished_at = null, changed_xid = txid_current()
        from unnest(types, quotas) t (job_type, quota)
        where j.id = any (ids) and t.job_type = j.job_type
        returning j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue, j.priority, j.tags, j.scope,
            j.attempt_id, j.attempts, j.quota, j.timeout_seconds, j.created_at, j.started_at, j.locked_at, j.delivery;
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
    has_limits boolean;
    any_limits boolean;
    has_lines boolean;  -- or news of them
    is_limited boolean := false;  -- limits may hold back what this claim could have got
    is_plain boolean[];
    opens_in float8;
    is_empty boolean;
    is_only_kind boolean;  -- nothing but this kind is ready:
    only_queue text;
    only_type text;
    first_priority smallint;  -- of its first job
    first_id bigint;
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
        exists (select from reactor.queues q where q.paused), exists (select from reactor.limits),
        exists (select from reactor.lines) or exists (select from reactor.arrivals),
        first.queue, first.job_type, first.priority, first.id,
        not exists (
            select from reactor.jobs j
            where j.phase = 'ready' and j.lane is null
                and (j.queue, j.job_type) > (first.queue, first.job_type))
    into pod, has_freed_scopes, has_unresolved, any_paused, has_limits, has_lines, only_queue, only_type,
        first_priority, first_id, is_only_kind
    from reactor.workers w
    left join lateral (
        select j.queue, j.job_type, j.priority, j.id from reactor.jobs j
        where j.phase = 'ready' and j.lane is null and claim.marks is null
        order by j.queue, j.job_type, j.priority, j.id limit 1) first on true
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
        -- Not `... or later`: a plan for the value true contains no call.
        if reactor.free_more_scopes() then
            later := true;
        end if;
        is_empty := false;
        is_only_kind := false;
    end if;

    if has_limits or has_lines then
        -- Does this claim have to look at them? Lines may be served, there are news, or ready jobs that may run have
        -- limits. (Marks are for kinds without.)
        any_limits := has_limits;
        has_limits := false;
        if has_lines then
            has_limits := reactor.may_serve_lines(queues, types);
        end if;
        if is_only_kind and any_limits and not has_limits then
            has_limits := exists (select from reactor.limits l
                where l.queue in ('', only_queue) and l.job_type in ('', only_type) and l.lane = '');
        end if;
        if has_limits then
            return query select * from reactor.claim_limited(
                claim.worker_id, pod, batch, queues, types, quotas, slots, random_part, later);
            return;
        end if;
        if marks is not null then
            if exists (
                select from jsonb_to_recordset(marks) m (queue text, job_type text)
                join reactor.limits l on l.queue in ('', m.queue) and l.job_type in ('', m.job_type) and l.lane = '')
            then
                marks := null;
            end if;
        end if;
        if any_limits and marks is null and not is_empty and not is_only_kind then
            if only_queue is null or slots is not null then
                has_limits := exists (select from reactor.limits l
                    where l.lane = '' and (l.job_type = '' or l.job_type = any (types))
                        and (l.queue = '' or queues is null or l.queue = any (queues)));
            else
                -- Often, all but one of them are full, and that one has no limits.
                select k.queue, k.job_type, k.is_only, k.is_empty, k.has_limits, k.is_limited
                into only_queue, only_type, is_only_kind, is_empty, has_limits, is_limited
                from reactor.open_ready_kinds(queues, types, only_queue, only_type) k;
                first_priority := -32768;
                first_id := 1;
            end if;
        end if;
        is_limited := is_limited or has_limits;
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
            kind_after_priority := array[first_priority];
            kind_after_id := array[first_id - 1];
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
                        claim.worker_id, pod, batch, queues, types, quotas, slots, random_part, later);
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
                    select l.location, l.id, l.scope
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
                    state = 'running', phase = 'taken', counted = j.counted and j.worker_id is not null,
                    attempt_id = encode(random_part || substring(int8send(j.id) from 2), 'hex')::uuid,
                    worker_id = claim.worker_id, locked_by = pod, locked_at = taken_at,
                    started_at = coalesce(j.started_at, taken_at), attempts = j.attempts + 1,
                    quota = coalesce(j.max_attempts, greatest(quotas[array_position(types, j.job_type)], j.quota), 3),
                    broken_by = null, finished_at = null, changed_xid = txid_current()
                -- An array: a join would start a scan for each row, which asks the kernel for the size of the table.
                where j.ctid = any (array(
                    select p.location from picked p
                    where not exists (select from picked s where s.scope is not null)))
                returning j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue, j.priority, j.tags, j.scope,
                    j.attempt_id, j.attempts, j.quota, j.timeout_seconds, j.created_at, j.started_at, j.locked_at,
                    j.delivery;
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
        -- With slots, the next claim continues: it knows how many of them are still free.
        exit when not again or slots is not null and not is_idle;
        window_size := least(1000, greatest(100, 2 * window_size));
    end loop;
    if remaining > 0 and (is_limited or has_lines) then
        is_limited := is_limited or reactor.has_lines(queues, types);
        opens_in := reactor.next_opening(queues, types);
    end if;
    if again or later or is_limited and remaining > 0 then
        return query select null::bigint,
            case when again and not is_idle then 'again' when again or later then 'later' else 'limited' end,
            null::jsonb, null::uuid, null::bigint, null, null::smallint, null::text[], null, null::uuid, null::int,
            null::int, opens_in::real, null::timestamptz, null::timestamptz, null::timestamptz, null;
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
    is_locked boolean[];
    locked int[] := '{}';
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
        select l.is_locked, l.locked into is_locked, locked
        from reactor.lock_limits(array[job.queue], array[job.job_type]) l;
        if not is_locked[1] then
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
        array[claim_job.quota], substring(uuid_send(gen_random_uuid()) for 9), reactor.charge_limits(taken, locked));
end
$$;
comment on function reactor.claim_job is 'Claims one job for a live worker, if it can run now.';
