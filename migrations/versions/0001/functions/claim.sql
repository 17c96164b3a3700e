-- Claims: each job goes to exactly one of any number of workers. Claims wait for no lock: what another transaction has
-- locked is skipped. (Functions called from here are PL/pgSQL: SQL functions are planned at each call, which takes a
-- third of a millisecond.)
--
-- A kind is a queue and a job type: within it, jobs_ready has the jobs in the order in which they are claimed.

-- Queues that are paused or full, as far as this transaction sees.
create or replace function reactor.closed_queues() returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
begin
    return array(
        select q.name from reactor.queues q
        left join (select j.queue, count(*) as n from reactor.held_jobs j group by j.queue) h on h.queue = q.name
        where q.paused or q.max_running <= coalesce(h.n, 0));
end
$$;

-- The kinds to claim from, at most `batch`, those with the most urgent jobs first, without closed queues. With `marks`,
-- only kinds that these name (reactor.claim says what they are).
create or replace function reactor.ready_kinds(
    wanted text[], closed text[], types text[], quotas int[], batch int, marks jsonb,
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
        where m.queue <> all (closed);
        return;
    end if;
    if wanted is null then
        -- A loose index scan: one step through the index for each queue.
        with recursive ready (name) as (
            (select j.queue from reactor.jobs j
                where j.phase = 'ready'
                order by j.queue limit 1)
            union all
            select (select j.queue from reactor.jobs j
                where j.phase = 'ready'
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
        from (select unnest(wanted) as queue except select unnest(closed)) o
        cross join unnest(types, quotas) t (job_type, quota)
        cross join lateral (
            select j.priority, j.id from reactor.jobs j
            where j.phase = 'ready'
                and j.queue = o.queue and j.job_type = t.job_type
            order by j.priority, j.id limit 1) head
        order by head.priority, head.id limit batch
    ) k;
end
$$;

-- The number of further jobs that each of these queues may run; NULL: no limit. Limits hold over all pods, so claims
-- from a limited queue take turns: 0, and `left_some`, if another claim has the lock.
create or replace function reactor.free_capacity(queues text[], out free int[], out left_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    locked_queues text[];
    held jsonb;
begin
    locked_queues := array(
        select q.name from reactor.queues q where q.name = any (queues) and q.max_running is not null
        order by q.name for no key update skip locked);
    -- A new statement, which sees the claims that came before the locks; one pass over the jobs that workers hold.
    select jsonb_object_agg(h.queue, h.n) into held
    from (select j.queue, count(*) as n from reactor.held_jobs j
        where j.queue = any (locked_queues) group by j.queue) h;
    select array_agg(case when q.max_running is null then null when q.name <> all (locked_queues) then 0
            else greatest(0, q.max_running - coalesce((held ->> q.name)::int, 0)) end order by w.n),
        coalesce(bool_or(q.max_running is not null and q.name <> all (locked_queues)), false)
    into free, left_some
    from unnest(queues) with ordinality w (name, n)
    left join reactor.queues q on q.name = w.name;
end
$$;
comment on function reactor.free_capacity is
    'Locks the limited ones of these queues, and returns how many further jobs each may run.';

-- How many jobs of each kind belong to the first `batch` over all of them, by priority and id. First without locks:
-- locking a whole batch of each kind would make other pods skip the surplus. A few jobs of each kind give a bound that
-- none of the first `batch` lies beyond; so only about that many are read, however many kinds there are.
create or replace function reactor.share_batch(
    queues text[], types text[], free int[], after_priority smallint[], after_id bigint[], batch int)
    returns int[]
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return array(
        with kind as materialized (
            select k.* from unnest(queues, types, free, after_priority, after_id)
                with ordinality k (queue, job_type, free, priority, id, n)
        ), few as materialized (
            select r.priority, r.id from kind k cross join lateral (
                select j.priority, j.id from reactor.jobs j
                where j.phase = 'ready'
                    and j.queue = k.queue and j.job_type = k.job_type and (j.priority, j.id) > (k.priority, k.id)
                order by j.priority, j.id limit least(k.free, 1 + 2 * batch / cardinality(queues))) r
            order by r.priority, r.id limit batch
        ), bound as materialized (
            select f.priority, f.id from few f order by f.priority, f.id offset batch - 1
        ), first as materialized (
            select k.n, k.queue, k.free, r.priority, r.id from kind k cross join lateral (
                select j.priority, j.id from reactor.jobs j
                where j.phase = 'ready'
                    and j.queue = k.queue and j.job_type = k.job_type and (j.priority, j.id) > (k.priority, k.id)
                    and (j.priority, j.id) <= (coalesce((select b.priority from bound b), 32767),
                        coalesce((select b.id from bound b), 9223372036854775807))
                order by j.priority, j.id limit least(k.free, batch)) r
        ), allowed as (
            select f.n, f.priority, f.id from (
                select f.*, row_number() over (partition by f.queue order by f.priority, f.id) as place from first f) f
            where f.free is null or f.place <= f.free
            order by f.priority, f.id limit batch
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
-- attempt_id: the fence.
create or replace function reactor.start_attempts(
    ids bigint[], worker_id uuid, pod text, types text[], quotas int[], random_part bytea)
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
-- once, or `later` if other transactions must end first.
--
-- `marks`: where to start in each kind, as [{"queue", "job_type", "priority", "id"}, ...]. While an old snapshot is
-- open, vacuum can't remove the index entries of claimed jobs, and each claim walks past all of them: a millisecond for
-- a thousand. A worker that notices claims with marks in between: the first job that it last found in each kind.
create or replace function reactor.claim(
    worker_id uuid, batch int, queues text[], types text[], quotas int[], marks jsonb default null)
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
    has_queues boolean;
    is_empty boolean;
    is_only_kind boolean;  -- nothing but this kind is ready:
    only_queue text;
    only_type text;
    closed text[] := '{}';
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
    select w.pod, exists (select from reactor.freed_scopes), exists (select from reactor.unresolved),
        exists (select from reactor.queues), first.queue, first.job_type,
        not exists (
            select from reactor.jobs j
            where j.phase = 'ready' and (j.queue, j.job_type) > (first.queue, first.job_type))
    into pod, has_freed_scopes, has_unresolved, has_queues, only_queue, only_type, is_only_kind
    from reactor.workers w
    left join lateral (
        select j.queue, j.job_type from reactor.jobs j where j.phase = 'ready' and claim.marks is null
        order by j.queue, j.job_type limit 1) first on true
    where w.id = claim.worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s);
    if not found then
        return;
    end if;
    is_empty := only_queue is null and marks is null;
    is_only_kind := is_only_kind and not has_queues and not is_empty and marks is null;
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

    if has_queues then
        closed := reactor.closed_queues();
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
            select k.queue, k.job_type, k.quota, k.after_priority, k.after_id
            into kind_queue, kind_type, kind_quota, kind_after_priority, kind_after_id
            from reactor.ready_kinds(queues, closed, types, quotas, window_size, marks) k;
            exit when kind_queue is null;
            if has_queues then
                select c.free, later or c.left_some into kind_free, later from reactor.free_capacity(kind_queue) c;
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
                        where j.phase = 'ready'
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
                    state = 'running', phase = 'taken',
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
                where j.phase = 'ready'
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
    if again or later then
        return query select null::bigint, case when again and not is_idle then 'again' else 'later' end, null::jsonb,
            null::uuid, null::bigint, null, null::smallint, null::text[], null, null::uuid, null::int, null::int,
            null::real, null::timestamptz, null::timestamptz, null::timestamptz;
    end if;
end
$$;
comment on function reactor.claim is
    'Claims up to `batch` due jobs for a live worker; returns what handlers need. '
    'A last row without an id says when to claim again: job_type again (now) or later (soon).';

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
    select j.id, j.scope, j.job_type, j.queue into job from reactor.jobs j
    where j.id = claim_job.job_id and j.state = 'pending' and j.job_type is not null
        and (j.run_after is null or j.run_after <= clock_timestamp())
        and j.attempts < coalesce(j.max_attempts, greatest(claim_job.quota, j.quota), 3)
        and not exists (select from reactor.queues q where q.name = j.queue and q.paused)
    for no key update skip locked;
    if not found or (select c.free[1] = 0 from reactor.free_capacity(array[job.queue]) c) then
        return;
    end if;
    select t.taken into taken
    from reactor.take_scopes(array[job.id], array[job.scope], 1, in_order => false) t;
    return query select * from reactor.start_attempts(taken, claim_job.worker_id, pod, array[job.job_type],
        array[claim_job.quota], substring(uuid_send(gen_random_uuid()) for 9));
end
$$;
comment on function reactor.claim_job is 'Claims one job for a live worker, if it can run now.';
