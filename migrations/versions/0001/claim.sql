-- The claim: of any number of workers, one gets a job.

-- Of these jobs, whose rows the caller has locked, the ones whose scope can be taken now. The rest is parked, if asked.
create function reactor.admit(
    ids bigint[], scopes text[], park boolean, out admitted bigint[], out parked_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ours text[];
    waits bigint[];
    leaders text[];
    locked text[];
    stuck text[];
begin
    parked_some := false;
    if array_remove(scopes, null) = '{}' then
        admitted := ids;
        return;
    end if;

    -- Scopes whose lock somebody else has stay as they are: that one is deciding about them right now.
    select array_agg(s.scope) into ours
    from (select distinct u.scope from unnest(scopes) u (scope) where u.scope is not null) s
    where pg_try_advisory_xact_lock(reactor.scope_lock_class(), hashtext(s.scope));

    -- A new statement has a new snapshot: claims and releases that came before our lock are seen.
    select
        array_agg(x.id) filter (where x.scope is null or x.place = 1 and not x.busy),
        array_agg(x.id) filter (where x.scope is not null and (x.place > 1 or x.busy)),
        array_agg(x.scope) filter (where x.scope is not null and x.place = 1 and not x.busy)
    into admitted, waits, leaders
    from (
        select u.id, u.scope,
            row_number() over (partition by u.scope order by u.place) as place,
            u.scope is not null and exists (
                select from reactor.jobs h where h.scope = u.scope and h.worker_id is not null) as busy
        from unnest(ids, scopes) with ordinality u (id, scope, place)
        where u.scope is null or u.scope = any (ours)
    ) x;

    if waits is not null and park then
        update reactor.jobs j set parked = true, changed = pg_current_xact_id() where j.id = any (waits);
        parked_some := true;
    end if;

    if leaders is not null then
        -- Whoever has the previous current row may be waiting for our scope's lock: don't wait for it in turn.
        select array_agg(c.scope) into locked from (
            select j.scope from reactor.jobs j where j.scope = any (leaders) and j.is_current
            for no key update skip locked) c;
        select array_agg(j.scope) into stuck
        from reactor.jobs j
        where j.scope = any (leaders) and j.is_current and j.scope <> all (coalesce(locked, '{}'));
        if stuck is not null then
            select array_agg(u.id) into admitted
            from unnest(ids, scopes) u (id, scope)
            where u.id = any (admitted) and (u.scope is null or u.scope <> all (stuck));
        end if;
        -- A job that is claimed again is its own predecessor: that row is written once, below.
        update reactor.jobs j set is_current = false, changed = pg_current_xact_id()
        where j.scope = any (locked) and j.is_current and j.id <> all (coalesce(admitted, '{}'));
    end if;
end
$$;

-- The worker, if it may claim: alive by the database's clock, and nobody is draining.
create function reactor.claimant(worker_id uuid) returns setof reactor.workers
language sql stable set search_path = pg_catalog, pg_temp as $$
    select w.* from reactor.workers w
    where w.id = worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s)
$$;

-- The queues that are open, each with the room it has left (NULL: no limit). Limits are over all pods, so those who count
-- and claim take turns.
create function reactor.open_queues(wanted text[]) returns table (queue text, room int)
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if wanted is null then
        -- The distinct queues of the ready jobs, by one step through the index for each.
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
    perform pg_advisory_xact_lock(reactor.scope_lock_class() + 1, hashtext(q.name))
    from (select q.name from reactor.queues q where q.max_running is not null and q.name = any (wanted) order by 1) q;
    return query
        select w.name, case when q.max_running is not null then greatest(0, q.max_running - (
            select count(*)::int from reactor.jobs j where j.queue = w.name and j.worker_id is not null)) end
        from unnest(wanted) w (name)
        left join reactor.queues q on q.name = w.name
        where not coalesce(q.paused, false);
end
$$;

-- What a handler needs to know of its job. Not the whole row: at full speed the columns count.
create type reactor.claimed as (
    id bigint, job_type text, payload jsonb, pipeline_id uuid, parent_id bigint, queue text, priority smallint, tags text[],
    scope text, attempt_id uuid, attempts int, quota int, timeout_seconds real, created_at timestamptz,
    started_at timestamptz, locked_at timestamptz);

-- Up to `batch` ready jobs of these types (with the attempts their handlers registered) and queues (NULL: all).
-- Or, with `single`, that one job: no row when it can't be had now, and then nothing has changed.
create function reactor.claim(
    worker_id uuid, batch int, queues text[], types text[], quotas int[], single bigint default null)
    returns setof reactor.claimed
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    worker reactor.workers;
    open_queue text[];
    rooms int[];
    ids bigint[];
    scopes text[];
    admission record;
    remaining int := batch;
begin
    select c.* into worker from reactor.claimant(claim.worker_id) c;
    if not found then
        return;
    end if;
    -- Jobs that were parked leave their place to others: look again, so that a busy scope does not cost a batch.
    for round in 1 .. 20 loop
        if single is not null then
            select array[j.id], array[j.scope::text], array[j.job_type::text] into ids, scopes, types
            from reactor.jobs j
            where j.id = single and j.state = 'pending' and j.job_type is not null
                and (j.run_after is null or j.run_after <= clock_timestamp())
                and j.attempts < coalesce(j.max_attempts, quotas[1], 3)
                and exists (
                    select from reactor.open_queues(array[j.queue::text]) q where q.room is null or q.room > 0)
            for no key update skip locked;
        else
            select array_agg(q.queue), array_agg(q.room) into open_queue, rooms from reactor.open_queues(queues) q;

            -- First who would be next over all queues and types, without a lock; then as many of each kind as that gave,
            -- with. Locking at once would lock a whole batch of each kind, and other pods would take the rest for taken.
            select array_agg(l.id order by l.priority, l.id), array_agg(l.scope order by l.priority, l.id)
            into ids, scopes
            from (
                select next.queue, next.job_type, next.quota, count(*) as n
                from (
                    select c.queue, c.job_type, c.quota
                    from (
                        select o.queue, o.room, t.job_type, t.quota, r.priority, r.id,
                            row_number() over (partition by o.queue order by r.priority, r.id) as place
                        from unnest(open_queue, rooms) o (queue, room)
                        cross join unnest(types, quotas) t (job_type, quota)
                        cross join lateral (
                            select j.priority, j.id from reactor.jobs j
                            where j.state = 'pending' and j.run_after is null and not j.parked
                                and j.queue = o.queue and j.job_type = t.job_type
                            order by j.priority, j.id limit least(remaining, o.room)) r
                    ) c
                    where c.room is null or c.place <= c.room
                    order by c.priority, c.id limit remaining
                ) next
                group by next.queue, next.job_type, next.quota
            ) kind
            cross join lateral (
                select j.id, j.scope, j.priority from reactor.jobs j
                where j.state = 'pending' and j.run_after is null and not j.parked
                    and j.queue = kind.queue and j.job_type = kind.job_type
                    and j.attempts < coalesce(j.max_attempts, kind.quota, 3)
                order by j.priority, j.id limit kind.n
                for no key update skip locked) l;
        end if;
        exit when ids is null;

        select a.admitted, a.parked_some into admission from reactor.admit(ids, scopes, park => single is null) a;
        -- From here on every write to these jobs needs their new attempt_id.
        return query
            update reactor.jobs j set
                state = 'running', attempt_id = gen_random_uuid(), worker_id = worker.id, locked_by = worker.pod,
                locked_at = clock_timestamp(), started_at = coalesce(j.started_at, clock_timestamp()),
                attempts = j.attempts + 1, quota = coalesce(j.max_attempts, t.quota, 3),
                is_current = j.scope is not null, parked = false, run_after = null, broken_by = null, finished_at = null,
                changed = pg_current_xact_id()
            from unnest(types, quotas) t (job_type, quota)
            where j.id = any (admission.admitted) and t.job_type = j.job_type
            returning j.id, j.job_type::text, j.payload::jsonb, j.pipeline_id, j.parent_id, j.queue::text,
                j.priority::smallint, j.tags::text[], j.scope::text, j.attempt_id, j.attempts, j.quota, j.timeout_seconds,
                j.created_at, j.started_at, j.locked_at;
        remaining := remaining - coalesce(cardinality(admission.admitted), 0);
        exit when remaining <= 0 or not admission.parked_some;
    end loop;
end
$$;
comment on function reactor.claim is
    'Claims up to `batch` due jobs for a live worker, or with `single` that one job; returns what their handlers need.';
