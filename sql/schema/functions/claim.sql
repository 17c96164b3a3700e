-- Claims: each job goes to exactly one of any number of workers. (Functions called from here are PL/pgSQL: SQL
-- functions are planned at each call, which takes a third of a millisecond.)

-- The queues to claim from: the wanted ones, or (NULL) all that have ready jobs, without the paused ones. Limits hold
-- over all pods, so claims from limited queues take turns: they lock them by name, once for each claim.
create or replace function reactor.open_queues(wanted text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if wanted is null then
        -- A loose index scan: one step through the index for each queue.
        with recursive ready (name) as (
            (select j.queue from reactor.jobs j
                where j.state = 'pending' and j.run_after is null and not j.parked and j.job_type is not null
                order by j.queue limit 1)
            union all
            select (select j.queue from reactor.jobs j
                where j.state = 'pending' and j.run_after is null and not j.parked and j.job_type is not null
                    and j.queue > ready.name
                order by j.queue limit 1)
            from ready where ready.name is not null
        )
        select array_agg(ready.name) into wanted from ready where ready.name is not null;
    end if;
    if exists (select from reactor.queues) then
        select array_agg(w.name) into wanted from unnest(wanted) w (name)
        where not exists (select from reactor.queues q where q.name = w.name and q.paused);
        perform pg_advisory_xact_lock(reactor.scope_lock_class() + 1, hashtext(q.name))
        from (select q.name from reactor.queues q where q.max_running is not null
            and q.name = any (wanted) order by 1) q;
    end if;
    return wanted;
end
$$;

-- The number of further jobs that a queue's limit allows; NULL: no limit.
create or replace function reactor.free_capacity(queue text) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (
        select greatest(0, q.max_running - (
            select count(*)::int from reactor.jobs j where j.queue = q.name and j.worker_id is not null))
        from reactor.queues q where q.name = free_capacity.queue and q.max_running is not null);
end
$$;

-- Claims up to `batch` ready jobs of these types (with the attempts that their handlers registered) and queues (NULL:
-- all). With `single`, only that job: no row if it can't be claimed now, and then nothing has changed.
create or replace function reactor.claim(
    worker_id uuid, batch int, queues text[], types text[], quotas int[], single bigint default null)
    returns setof reactor.claimed
-- Settings: JIT compilation takes longer (30 ms) than any claim, and planning each time as long as claiming a single
-- job. Cached plans must suit a growing table: one made while the table was small would read all of it after a sudden
-- insert of 100,000 jobs (160 ms a claim instead of 9), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    worker reactor.workers;
    open_queue text[];
    capacities int[];  -- of the open queues
    ids bigint[];
    scopes text[];
    seen int;
    taken bigint[];
    parked_some boolean;
    remaining int := batch;
    window_size int := batch;
    taken_at timestamptz;
    rounds int := 0;
    -- One random number for the whole batch: where PostgreSQL was built without OpenSSL, each one opens /dev/urandom (5
    -- µs of a job's 45). Followed by the job's id it is unique to the attempt: 66 random bits, and a valid UUID of
    -- version 4.
    random_part bytea := substring(uuid_send(gen_random_uuid()) for 9);
begin
    -- The worker is alive by the database's clock, and draining is off.
    select w.* into worker from reactor.workers w
    where w.id = claim.worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s);
    if not found then
        return;
    end if;
    if single is not null then
        select array[j.queue], array[j.job_type] into queues, types from reactor.jobs j where j.id = single;
        if not found then
            return;
        end if;
    end if;
    open_queue := reactor.open_queues(queues);

    for round in 1 .. 12 loop
        parked_some := false;
        if single is not null then
            select array[j.id], array[j.scope] into ids, scopes
            from reactor.jobs j
            where j.id = single and j.state = 'pending' and j.job_type is not null
                and (j.run_after is null or j.run_after <= clock_timestamp())
                and j.attempts < coalesce(j.max_attempts, greatest(quotas[1], j.quota), 3)
                and j.queue = any (open_queue) and reactor.free_capacity(j.queue) is distinct from 0
            for no key update skip locked;
        else
            capacities := array(
                select reactor.free_capacity(q.name) from unnest(open_queue) with ordinality q (name, n) order by q.n);
            -- First, without locks: which jobs are next over all queues and types. Then, with locks: as many jobs of
            -- each queue and type as that found. Locking in one step would lock a whole batch of each kind, and other
            -- pods would skip the surplus.
            with next as materialized (
                select c.queue, c.job_type, c.quota
                from (
                    select o.queue, o.free, t.job_type, t.quota, r.priority, r.id,
                        row_number() over (partition by o.queue order by r.priority, r.id) as n
                    from unnest(open_queue, capacities) o (queue, free)
                    cross join unnest(types, quotas) t (job_type, quota)
                    cross join lateral (
                        select j.priority, j.id from reactor.jobs j
                        where j.state = 'pending' and j.run_after is null and not j.parked
                            and j.queue = o.queue and j.job_type = t.job_type
                            and j.attempts < coalesce(j.max_attempts, greatest(t.quota, j.quota), 3)
                        order by j.priority, j.id limit least(window_size, o.free)) r
                ) c
                where c.free is null or c.n <= c.free
                order by c.priority, c.id limit window_size
            )
            select array_agg(l.id order by l.priority, l.id), array_agg(l.scope order by l.priority, l.id),
                (select count(*) from next)
            into ids, scopes, seen
            from (select n.queue, n.job_type, n.quota, count(*) as n from next n group by 1, 2, 3) kind
            cross join lateral (
                select j.id, j.scope, j.priority from reactor.jobs j
                where j.state = 'pending' and j.run_after is null and not j.parked
                    and j.queue = kind.queue and j.job_type = kind.job_type
                    and j.attempts < coalesce(j.max_attempts, greatest(kind.quota, j.quota), 3)
                order by j.priority, j.id limit kind.n
                for no key update skip locked) l;
        end if;

        if ids is not null then
            if array_remove(scopes, null) = '{}' then
                taken := ids[1:remaining];
            else
                select s.taken, s.parked_some into taken, parked_some
                from reactor.take_scopes(ids, scopes, remaining, park => single is null) s;
            end if;
            taken_at := clock_timestamp();
            -- From here on, every write to these jobs needs their new attempt_id: the fence.
            return query
                update reactor.jobs j set
                    state = 'running',
                    attempt_id = encode(random_part || substring(int8send(j.id) from 2), 'hex')::uuid,
                    worker_id = worker.id, locked_by = worker.pod, locked_at = taken_at,
                    started_at = coalesce(j.started_at, taken_at), attempts = j.attempts + 1,
                    quota = coalesce(j.max_attempts, greatest(t.quota, j.quota), 3), is_current = j.scope is not null,
                    parked = false, run_after = null, broken_by = null, finished_at = null,
                    changed_xid = txid_current()
                from unnest(types, quotas) t (job_type, quota)
                where j.id = any (taken) and t.job_type = j.job_type
                returning j.id, j.job_type, j.payload, j.pipeline_id, j.parent_id, j.queue,
                    j.priority, j.tags, j.scope, j.attempt_id, j.attempts, j.quota,
                    j.timeout_seconds, j.created_at, j.started_at, j.locked_at;
            remaining := remaining - coalesce(cardinality(taken), 0);
        end if;
        -- Jobs with a busy scope, and rows that other claims have locked, must not use up the batch: continue while the
        -- window was full. Parked jobs have left the index by then; a growing window reaches past the others.
        exit when remaining <= 0 or single is not null or seen < window_size and not parked_some;
        window_size := least(2000, greatest(100, 2 * window_size));
        rounds := round;
    end loop;
    -- Other claims have skipped what this one locked and did not take; and after 12 rounds there may be more to claim.
    if rounds = 12 and remaining > 0 or rounds > 0 and remaining <= 0 and cardinality(ids) > cardinality(taken) then
        perform reactor.notify_jobs();
    end if;
end
$$;
comment on function reactor.claim is
    'Claims up to `batch` due jobs for a live worker, or with `single` only that job; returns what handlers need.';
