-- Scopes: at most one job of a scope is held by a worker. Jobs that would have to wait are parked by the claim that meets
-- them, out of the way of further claims, and the end of the job that holds the scope lets the next ones out.
--
-- Whoever takes or frees a scope does so under the scope's advisory lock: claims try and go on without, releases wait, in
-- the order of the hashes. (SKIP LOCKED in a release would leave jobs parked for ever.)

create function reactor.scope_lock_class() returns int
language sql immutable parallel safe set search_path = pg_catalog, pg_temp return 1919247220;  -- 'rect'

-- In one order for everybody who waits.
create function reactor.lock_scopes(scopes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(reactor.scope_lock_class(), locks.hash)
    from (select distinct hashtext(s.scope) as hash from unnest(scopes) s (scope) order by 1) locks;
end
$$;

-- Lets out the first parked job of each free scope, one per queue and type: the pods of one queue, or with the handler of
-- one type, may be gone, and the others must not wait for them. Whoever is too many is parked again by a claim.
create function reactor.free_scopes(scopes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heads bigint[];
begin
    perform reactor.lock_scopes(scopes);

    -- A new statement, so that what committed while we waited is seen.
    select array_agg(head.id) into heads
    from (select distinct s.scope from unnest(scopes) s (scope)) free
    cross join lateral (
        with recursive kind (queue, job_type) as (
            (select p.queue, p.job_type from reactor.jobs p
                where p.scope = free.scope and p.state = 'pending' and p.parked
                order by p.queue, p.job_type limit 1)
            union all
            select next.queue, next.job_type from kind cross join lateral (
                select p.queue, p.job_type from reactor.jobs p
                where p.scope = free.scope and p.state = 'pending' and p.parked
                    and (p.queue, p.job_type) > (kind.queue, kind.job_type)
                order by p.queue, p.job_type limit 1) next
        )
        select kind.queue, kind.job_type from kind
    ) kind
    cross join lateral (
        select p.id from reactor.jobs p
        where p.scope = free.scope and p.state = 'pending' and p.parked
            and p.queue = kind.queue and p.job_type = kind.job_type
        order by p.priority, p.id limit 1
    ) head
    where not exists (select from reactor.jobs h where h.scope = free.scope and h.worker_id is not null);

    if heads is not null then
        update reactor.jobs j set parked = false, changed = pg_current_xact_id()
        where j.id = any (heads) and j.state = 'pending';
    end if;
end
$$;
