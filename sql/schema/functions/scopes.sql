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

-- Of these jobs, whose rows the caller has locked, the first `batch` whose scope can be taken now. Those that must wait for
-- their scope are parked, if asked.
create function reactor.admit(
    ids bigint[], scopes text[], batch int, park boolean, out admitted bigint[], out parked_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ours text[];
    waits bigint[];
    mine text[];
    locked text[];
    stuck text[];
begin
    parked_some := false;
    if array_remove(scopes, null) = '{}' then
        admitted := ids[1:batch];
        return;
    end if;

    -- Scopes whose lock somebody else has stay as they are: that one is deciding about them right now.
    select array_agg(s.scope) into ours
    from (select distinct u.scope from unnest(scopes) u (scope) where u.scope is not null) s
    where pg_try_advisory_xact_lock(reactor.scope_lock_class(), hashtext(s.scope));

    -- Whoever has a scope's current row may be waiting for our lock: don't wait for it in turn, leave the scope alone.
    select array_agg(c.scope) into locked from (
        select j.scope from reactor.jobs j where j.scope = any (ours) and j.is_current
        for no key update skip locked) c;
    select array_agg(j.scope) into stuck
    from reactor.jobs j where j.scope = any (ours) and j.is_current and j.scope <> all (coalesce(locked, '{}'));

    -- New statements have new snapshots: claims and releases that came before our lock are seen.
    select array_agg(x.id order by x.place), array_agg(x.scope order by x.place)
    into admitted, mine
    from (
        select u.id, u.scope, u.place,
            u.scope is not null and (
                row_number() over (partition by u.scope order by u.place) > 1
                or exists (select from reactor.jobs h where h.scope = u.scope and h.worker_id is not null)) as waits
        from unnest(ids, scopes) with ordinality u (id, scope, place)
        where u.scope is null or u.scope = any (ours) and u.scope <> all (coalesce(stuck, '{}'))
    ) x where not x.waits;
    admitted := admitted[1:batch];
    mine := mine[1:batch];

    -- Parked behind what runs or is about to, never behind a job that we don't take: nobody else may want that one.
    select array_agg(u.id) into waits
    from unnest(ids, scopes) u (id, scope)
    where u.scope = any (ours) and u.scope <> all (coalesce(stuck, '{}')) and u.id <> all (coalesce(admitted, '{}'))
        and (u.scope = any (mine)
            or exists (select from reactor.jobs h where h.scope = u.scope and h.worker_id is not null));

    if waits is not null and park then
        update reactor.jobs j set parked = true, changed = pg_current_xact_id() where j.id = any (waits);
        parked_some := true;
    end if;

    -- A job that is claimed again is its own predecessor: that row is written once, by the claim.
    if locked is not null and admitted is not null then
        update reactor.jobs j set is_current = false, changed = pg_current_xact_id()
        where j.is_current and j.id <> all (admitted)
            and j.scope in (select u.scope from unnest(ids, scopes) u (id, scope) where u.id = any (admitted));
    end if;
end
$$;
