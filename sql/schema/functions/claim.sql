-- The claim: of any number of workers, one gets a job.
-- (Functions called from here are PL/pgSQL: those in SQL are planned anew at each call, a third of a millisecond a piece.)

-- The queues to look into: those wanted, or (NULL) all that have ready jobs, less the paused ones. Limits are over all
-- pods, so those who count and claim take turns: in the order of names, once for each claim.
create function reactor.open_queues(wanted text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if wanted is null then
        -- Distinct by one step through the index for each.
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
        from (select q.name from reactor.queues q where q.max_running is not null and q.name = any (wanted) order by 1) q;
    end if;
    return wanted;
end
$$;

-- How many more jobs of a queue may run; NULL: as many as there are.
create function reactor.room(queue text) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return (
        select greatest(0, q.max_running - (
            select count(*)::int from reactor.jobs j where j.queue = q.name and j.worker_id is not null))
        from reactor.queues q where q.name = room.queue and q.max_running is not null);
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
-- Compiling the plan took longer (30 ms) than any claim, and planning each time as long as claiming a lone job.
-- Plans that are kept must suit what comes: made while the table was small, they would read all of it in a sudden crowd
-- of 100,000 (160 ms a claim instead of 9), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    worker reactor.workers;
    open_queue text[];
    rooms int[];
    ids bigint[];
    scopes text[];
    seen int;
    admitted bigint[];
    parked_some boolean;
    remaining int := batch;
    look_at int := batch;
    taken_at timestamptz;
    rounds int := 0;
    -- Drawn once for all: where PostgreSQL was built without OpenSSL, every draw opens /dev/urandom (5 µs of a job's 45).
    -- With the job's id behind it, it is no other attempt's: 66 random bits, and still a UUID of version 4.
    drawn bytea := substring(uuid_send(gen_random_uuid()) for 9);
begin
    -- Alive by the database's clock, and nobody is draining.
    select w.* into worker from reactor.workers w
    where w.id = claim.worker_id and w.ended_at is null and w.lease_until > clock_timestamp()
        and not (select s.draining from reactor.settings s);
    if not found then
        return;
    end if;
    if single is not null then
        select array[j.queue::text], array[j.job_type::text] into queues, types from reactor.jobs j where j.id = single;
        if not found then
            return;
        end if;
    end if;
    open_queue := reactor.open_queues(queues);

    for round in 1 .. 12 loop
        parked_some := false;
        if single is not null then
            select array[j.id], array[j.scope::text] into ids, scopes
            from reactor.jobs j
            where j.id = single and j.state = 'pending' and j.job_type is not null
                and (j.run_after is null or j.run_after <= clock_timestamp())
                and j.attempts < coalesce(j.max_attempts, greatest(quotas[1], j.quota), 3)
                and j.queue = any (open_queue) and reactor.room(j.queue) is distinct from 0
            for no key update skip locked;
        else
            rooms := array(select reactor.room(q.name) from unnest(open_queue) with ordinality q (name, n) order by q.n);
            -- First who would be next over all queues and types, without a lock; then as many of each kind as that gave,
            -- with. Locking at once would lock a whole batch of each kind, and other pods would take the rest for taken.
            with next as materialized (
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
                            and j.attempts < coalesce(j.max_attempts, greatest(t.quota, j.quota), 3)
                        order by j.priority, j.id limit least(look_at, o.room)) r
                ) c
                where c.room is null or c.place <= c.room
                order by c.priority, c.id limit look_at
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
            select a.admitted, a.parked_some into admitted, parked_some
            from reactor.admit(ids, scopes, remaining, park => single is null) a;
            taken_at := clock_timestamp();
            -- From here on every write to these jobs needs their new attempt_id.
            return query
                update reactor.jobs j set
                    state = 'running', attempt_id = encode(drawn || substring(int8send(j.id) from 2), 'hex')::uuid,
                    worker_id = worker.id, locked_by = worker.pod,
                    locked_at = taken_at, started_at = coalesce(j.started_at, taken_at),
                    attempts = j.attempts + 1, quota = coalesce(j.max_attempts, greatest(t.quota, j.quota), 3),
                    is_current = j.scope is not null, parked = false, run_after = null, broken_by = null,
                    finished_at = null, changed = pg_current_xact_id()
                from unnest(types, quotas) t (job_type, quota)
                where j.id = any (admitted) and t.job_type = j.job_type
                returning j.id, j.job_type::text, j.payload::jsonb, j.pipeline_id, j.parent_id, j.queue::text,
                    j.priority::smallint, j.tags::text[], j.scope::text, j.attempt_id, j.attempts, j.quota,
                    j.timeout_seconds::real, j.created_at, j.started_at, j.locked_at;
            remaining := remaining - coalesce(cardinality(admitted), 0);
        end if;
        -- Jobs whose scope is busy, and rows that others have locked, must not cost a batch: look further while there is
        -- more to see than we got. Parked ones are gone by then; the others are passed by looking at more and more.
        exit when remaining <= 0 or single is not null or seen < look_at and not parked_some;
        look_at := least(2000, greatest(100, 2 * look_at));
        rounds := round;
    end loop;
    -- Others have passed by what we had locked and did not take; and after so many rounds there may be more to see.
    if rounds = 12 and remaining > 0 or rounds > 0 and remaining <= 0 and cardinality(ids) > cardinality(admitted) then
        perform reactor.ring_jobs();
    end if;
end
$$;
comment on function reactor.claim is
    'Claims up to `batch` due jobs for a live worker, or with `single` that one job; returns what their handlers need.';
