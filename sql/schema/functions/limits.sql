-- Limits: how many jobs run at the same time, and how many start in a period, over all pods.
--
-- Nothing is counted in advance. The jobs that a limit with max_running counts have a row in reactor.places while a
-- worker holds them: their claim inserts it, and the update that takes the worker from the job deletes it.
--
-- Claims from a kind (a queue and a job type) that has limits or lanes take turns. They lock the kind and each limit of
-- it, by rows of reactor.limit_locks; locks are tried and never waited for. A claim that fails to get one leaves the
-- kind and comes back. A limit's lock covers the kinds below it: a claim that has the lock of a type is the only one
-- from any queue of it.
--
-- A limit that is full causes a notification when it has room again. A rate causes none: the claim that leaves jobs
-- because of it answers when it allows more. Therefore a claim looks at all rates as of one time, the start of its
-- statement. With a later time for the answer, a rate that allows more by then would be left out of both.

create or replace function reactor.limit_bucket(queue text, job_type text) returns int
language sql immutable parallel safe return hashtext(queue || chr(31) || job_type) & 1023;

-- Limits, with what follows from their columns. `is_new`: claims that don't know it yet may be under way.
create or replace view reactor.limit_rules as
select l.queue, l.job_type, l.lane, l.max_running, l.rate, l.period / l.rate as every,
    coalesce(l.burst, least(l.rate, greatest(2, ceil(l.rate * 0.1 / extract(epoch from l.period)))::int)) as burst,
    l.seen_at is null or l.seen_at > clock_timestamp() - interval '10 seconds' as is_new, l.paced_at
from reactor.limits l;
comment on view reactor.limit_rules is 'The limits, with the defaults of their columns.';

-- The limits that apply to a job. `lane` is empty, or the job's lane. (In SQL and without settings, so that PostgreSQL
-- inlines it.)
create or replace function reactor.limits_of(of_queue text, of_type text, of_lane text)
    returns table (queue text, job_type text, lane text, max_running int, rate int, every interval, burst int,
        is_new boolean, paced_at timestamptz)
language sql stable as $$
    select l.queue, l.job_type, case l.lane when '' then '' else $3 end, l.max_running, l.rate, l.every, l.burst,
        l.is_new, l.paced_at
    from reactor.limit_rules l
    where l.queue in ('', $1) and l.job_type in ('', $2)
        and (l.lane = '' or l.lane = $3 or l.lane = '*' and $3 is not null and not exists (
            select from reactor.limits e where e.queue = l.queue and e.job_type = l.job_type and e.lane = $3))
$$;
comment on function reactor.limits_of is 'The limits that apply to jobs of this queue, type and lane.';

-- How many more jobs these limits allow now (NULL: any number), and if none, when the next one may start (infinity:
-- when one has ended). `lanes`: empty for a queue or type as a whole.
create or replace function reactor.room(queues text[], types text[], lanes text[])
    returns table (n int, free int, opens_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    now_at timestamptz := statement_timestamp();
begin
    return query
        select b.n::int,
            least(case when l.max_running is not null then greatest(0, l.max_running - l.running) end,
                case when l.rate is not null then floor(l.burst
                    - greatest(0, extract(epoch from s.paid_until - now_at)) / extract(epoch from l.every)) end)::int,
            -- A job that was claimed before the limit was known may end without news.
            case when l.max_running <= l.running
                then case when l.is_new then now_at + interval '1 second' else 'infinity' end
                else s.paid_until - (l.burst - 1) * l.every end
        from unnest(queues, types, lanes) with ordinality b (queue, job_type, lane, n)
        cross join lateral (
            select r.*, case when r.max_running is null then null
                when b.queue = '' and b.lane = '' then (
                    select count(*) from reactor.places p where p.job_type = b.job_type)
                when b.queue = '' then (
                    select count(*) from reactor.places p where p.job_type = b.job_type and p.lane = b.lane)
                when b.job_type = '' and b.lane = '' then (
                    select count(*) from reactor.places p where p.queue = b.queue)
                when b.job_type = '' then (
                    select count(*) from reactor.places p where p.queue = b.queue and p.lane = b.lane)
                when b.lane = '' then (
                    select count(*) from reactor.places p where p.queue = b.queue and p.job_type = b.job_type)
                else (
                    select count(*) from reactor.places p
                    where p.queue = b.queue and p.job_type = b.job_type and p.lane = b.lane) end as running
            from reactor.limit_rules r
            where r.queue = b.queue and r.job_type = b.job_type
                and (r.lane = b.lane or r.lane = '*' and b.lane <> '')
            order by r.lane = '*' limit 1
        ) l
        left join reactor.rates s on l.rate is not null
            and s.queue = b.queue and s.job_type = b.job_type and s.lane = b.lane and s.paced_at = l.paced_at;
end
$$;
comment on function reactor.room is 'How many more jobs limits allow, and when the next one may start.';

-- Tries to lock kinds, with all limits that apply to them. Returns for each whether it is locked, and the locks.
create or replace function reactor.lock_limits(
    queues text[], types text[], out is_locked boolean[], out locked int[])
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    kinds bigint[];
    buckets int[];
begin
    select array_agg(b.n), array_agg(b.bucket) into kinds, buckets
    from (
        select k.n, reactor.limit_bucket(k.queue, k.job_type) as bucket
        from unnest(queues, types) with ordinality k (queue, job_type, n)
        union
        select k.n, reactor.limit_bucket(l.queue, l.job_type)
        from unnest(queues, types) with ordinality k (queue, job_type, n)
        join reactor.limits l on l.queue in ('', k.queue) and l.job_type in ('', k.job_type)
        union
        -- Of a limit that was removed: the claim that takes its news opens lines of other kinds.
        select k.n, reactor.limit_bucket(d.queue, d.job_type)
        from unnest(queues, types) with ordinality k (queue, job_type, n)
        join (select distinct w.queue, w.job_type from reactor.departures w where w.queue = '' or w.job_type = '') d
            on d.queue in ('', k.queue) and d.job_type in ('', k.job_type)
    ) b;
    locked := array(
        select l.bucket from reactor.limit_locks l where l.bucket = any (buckets)
        order by l.bucket for no key update skip locked);
    is_locked := array(
        select not exists (
            select from unnest(kinds, buckets) b (n, bucket) where b.n = k.n and b.bucket <> all (locked))
        from generate_subscripts(queues, 1) k (n) order by k.n);
end
$$;
comment on function reactor.lock_limits is
    'Tries to lock kinds and their limits until the end of the transaction; returns what is locked.';

-- Before these jobs start, in a transaction that has locked their kinds: takes places, and pays the rates whose locks
-- it has. (Any other was created after it had chosen its jobs, and claims that know it write its row.) Returns the jobs
-- that have a place.
create or replace function reactor.charge_limits(ids bigint[], locked int[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
    now_at timestamptz := clock_timestamp();
    counted bigint[];
begin
    with placed as (
        insert into reactor.places as p (job_id, queue, job_type, lane)
        select j.id, j.queue, j.job_type, j.lane from reactor.jobs j
        where j.id = any (ids) and exists (
            select from reactor.limits_of(j.queue, j.job_type, j.lane) l where l.max_running is not null)
        on conflict (job_id) do update
            set queue = excluded.queue, job_type = excluded.job_type, lane = excluded.lane
        returning p.job_id
    )
    select array_agg(p.job_id) into counted from placed p;
    -- Not further ahead than the burst: the rate may have been lowered since the jobs were chosen.
    insert into reactor.rates (queue, job_type, lane, paced_at, paid_until)
    select c.queue, c.job_type, c.lane, c.paced_at, now_at + least(
        c.burst * c.every, c.n * c.every + greatest(interval '0', s.paid_until - now_at))
    from (
        select l.queue, l.job_type, l.lane, l.paced_at, l.every, l.burst, count(*) as n
        from reactor.jobs j cross join lateral reactor.limits_of(j.queue, j.job_type, j.lane) l
        where j.id = any (ids) and l.rate is not null and reactor.limit_bucket(l.queue, l.job_type) = any (locked)
        group by l.queue, l.job_type, l.lane, l.paced_at, l.every, l.burst) c
    left join reactor.rates s
        on s.queue = c.queue and s.job_type = c.job_type and s.lane = c.lane and s.paced_at = c.paced_at
    on conflict (queue, job_type, lane) do update set paced_at = excluded.paced_at, paid_until = excluded.paid_until;
    return coalesce(counted, '{}');
end
$$;
comment on function reactor.charge_limits is 'Counts jobs that are about to start; returns those that have a place.';

-- A limit has room: wakes pods whose claims were limited, at most once in 20 ms. Nothing but the commit follows.
create or replace function reactor.notify_places() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform reactor.notify_once('reactor.places_notified_at', 'reactor.places_notified_by',
        'reactor.places_refused_at', 'reactor_places', 20);
end
$$;
comment on function reactor.notify_places is 'Wakes pods whose claims were limited, at most once in 20 ms.';

-- The places of jobs that no worker holds any more become free. Returns whether there were any.
--
-- A worker that settles a job claims next, since it has a free slot and knows that a place may be free too. So other
-- pods need not come at once: they are notified on a channel of their own, and come a little later, in case that the
-- worker died or stopped. All of them at once would claim in vain, all but one, and keep that one waiting for the CPU.
-- Other ends notify as new jobs do.
create or replace function reactor.leave_places(ids bigint[]) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    was_any boolean;
begin
    with gone as (
        delete from reactor.places p where p.job_id = any (ids) returning p.queue, p.job_type, p.lane
    ), departed as (
        insert into reactor.departures (queue, job_type, lane)
        select distinct l.queue, l.job_type, g.lane from gone g
        cross join lateral reactor.limits_of(g.queue, g.job_type, g.lane) l
        where l.lane <> '' and l.max_running is not null
    )
    select exists (select from gone) into was_any;
    if was_any and current_setting('reactor.claims_next', true) = 'on' then
        perform reactor.notify_places();
    elsif was_any then
        perform reactor.notify_jobs();
    end if;
    return was_any;
end
$$;
comment on function reactor.leave_places is 'Frees the places of jobs in limits.';

-- Jobs that were running when a limit was created have no place yet. A claim that read the limits before may still add
-- one; so this is repeated for ten seconds after the limit was first seen. The caller has locked the limits.
create or replace function reactor.count_running(queues text[], types text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    uncounted bigint[];
begin
    update reactor.limits l set seen_at = clock_timestamp()
    where (l.queue, l.job_type, l.lane) in (
        select s.queue, s.job_type, s.lane from unnest(queues, types) k (queue, job_type)
        join reactor.limits s on s.queue in ('', k.queue) and s.job_type in ('', k.job_type)
        where s.seen_at is null
        for no key update of s skip locked);
    uncounted := array(
        select j.id from reactor.jobs j
        where not j.counted and j.worker_id is not null and j.id in (
            select h.id from reactor.held_jobs h
            where not h.counted and exists (
                select from reactor.limits_of(h.queue, h.job_type, h.lane) l
                where l.is_new and l.max_running is not null))
        order by j.id for no key update skip locked);
    if uncounted <> '{}' then
        insert into reactor.places (job_id, queue, job_type, lane)
        select j.id, j.queue, j.job_type, j.lane from reactor.jobs j where j.id = any (uncounted)
        on conflict (job_id) do nothing;
        update reactor.jobs j set counted = true, changed_xid = txid_current() where j.id = any (uncounted);
    end if;
end
$$;
comment on function reactor.count_running is 'Gives places to jobs that were running before their limit existed.';

-- Changed values are new to claims.
create or replace function reactor.before_limit_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.seen_at := null;
    if (new.queue, new.job_type, new.lane, new.rate, new.period, new.burst)
        is distinct from (old.queue, old.job_type, old.lane, old.rate, old.period, old.burst)
    then
        new.paced_at := clock_timestamp();
    end if;
    return new;
end
$$;

-- Opens the lines that the limit had closed, and copies the limit of a whole queue to reactor.queues. An exception for
-- one lane changes the limit of that lane when it is inserted, too, and when it is deleted: then that of each lane is
-- new to the lane's jobs, which may have no places.
create or replace function reactor.after_limit_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    was reactor.limits := case when tg_op = 'INSERT' then new else old end;
    is_exception boolean := was.lane not in ('', '*');
    is_moved boolean := tg_op = 'UPDATE' and (new.queue, new.job_type, new.lane) <> (old.queue, old.job_type, old.lane);
begin
    if tg_op <> 'INSERT' or is_exception then
        insert into reactor.departures (queue, job_type, lane) values (was.queue, was.job_type, '*');
    end if;
    if is_exception and (tg_op = 'DELETE' or is_moved) then
        update reactor.limits l set seen_at = null
        where l.queue = old.queue and l.job_type = old.job_type and l.lane = '*';
    end if;
    if tg_op <> 'INSERT' then
        if old.job_type = '' and old.lane = ''
            and (tg_op = 'DELETE' or is_moved)
        then
            update reactor.queues q set max_running = null where q.name = old.queue and q.max_running is not null;
        end if;
    end if;
    if tg_op <> 'DELETE' and new.job_type = '' and new.lane = '' then
        insert into reactor.queues as q (name, max_running) values (new.queue, new.max_running)
        on conflict (name) do update set max_running = excluded.max_running
        where q.max_running is distinct from excluded.max_running;
    end if;
    perform reactor.notify_jobs();
    return null;
end
$$;

-- queues.max_running is the limit of the whole queue.
create or replace function reactor.after_max_running_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'INSERT' and (tg_op = 'DELETE' or old.name <> new.name or new.max_running is null) then
        update reactor.limits l set max_running = null
        where l.queue = old.name and l.job_type = '' and l.lane = '' and l.max_running is not null
            and l.rate is not null;
        delete from reactor.limits l
        where l.queue = old.name and l.job_type = '' and l.lane = '' and l.max_running is not null
            and l.rate is null;
    end if;
    if tg_op <> 'DELETE' and new.max_running is not null then
        insert into reactor.limits as l (queue, max_running) values (new.name, new.max_running)
        on conflict (queue, job_type, lane) do update set max_running = excluded.max_running
        where l.max_running is distinct from excluded.max_running;
    end if;
    return null;
end
$$;
