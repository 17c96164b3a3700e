-- Scopes: a worker holds at most one job of a scope. A claim that finds a job's scope busy parks the job, so that
-- further claims don't see it; the end of the job that holds the scope unparks the next ones.
--
-- A scope is taken and freed under its advisory lock. Claims try the lock and skip the scope if it is not free;
-- releases wait, in the order of the hashes. (SKIP LOCKED in a release would leave jobs parked forever.)

create or replace function reactor.scope_lock_class() returns int
language sql immutable parallel safe set search_path = pg_catalog, pg_temp return 1919247220;  -- 'rect'

-- All waiters lock in the same order.
create or replace function reactor.lock_scopes(scopes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(reactor.scope_lock_class(), locks.hash)
    from (select distinct hashtext(s.scope) as hash from unnest(scopes) s (scope) order by 1) locks;
end
$$;

-- Unparks the first job of each free scope, one per queue and type: the pods of one queue, or with the handler of one
-- type, may be gone, and the other jobs must not wait for them. A claim parks the surplus again.
create or replace function reactor.free_scopes(scopes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    heads bigint[];
begin
    perform reactor.lock_scopes(scopes);

    -- A new statement, which sees what committed while this one waited.
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
        update reactor.jobs j set parked = false, changed_xid = txid_current()
        where j.id = any (heads) and j.state = 'pending';
    end if;
end
$$;

-- Takes the scopes of the first `batch` of these jobs whose scopes are free. The caller has locked the jobs' rows. With
-- `park`, the jobs that must wait for their scope are parked.
create or replace function reactor.take_scopes(
    ids bigint[], scopes text[], batch int, park boolean, out taken bigint[], out parked_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    locked_scopes text[];
    to_park bigint[];
    taken_scopes text[];
    writable text[];   -- scopes whose current row this transaction has locked
    contended text[];  -- scopes whose current row another transaction has locked
begin
    parked_some := false;
    -- Skips scopes that another transaction has locked: it is deciding about them right now.
    select array_agg(s.scope) into locked_scopes
    from (select distinct u.scope from unnest(scopes) u (scope) where u.scope is not null) s
    where pg_try_advisory_xact_lock(reactor.scope_lock_class(), hashtext(s.scope));

    -- The transaction that has locked a scope's current row may be waiting for our scope lock. Waiting for it in turn
    -- would be a deadlock, so the scope is skipped.
    select array_agg(c.scope) into writable from (
        select j.scope from reactor.jobs j where j.scope = any (locked_scopes) and j.is_current
        for no key update skip locked) c;
    select array_agg(j.scope) into contended
    from reactor.jobs j where j.scope = any (locked_scopes) and j.is_current
        and j.scope <> all (coalesce(writable, '{}'));

    -- New statements have new snapshots: they see claims and releases that came before our lock.
    select array_agg(x.id order by x.n), array_agg(x.scope order by x.n)
    into taken, taken_scopes
    from (
        select u.id, u.scope, u.n,
            u.scope is not null and (
                row_number() over (partition by u.scope order by u.n) > 1
                or exists (select from reactor.jobs h where h.scope = u.scope and h.worker_id is not null)) as is_busy
        from unnest(ids, scopes) with ordinality u (id, scope, n)
        where u.scope is null or u.scope = any (locked_scopes) and u.scope <> all (coalesce(contended, '{}'))
    ) x where not x.is_busy;
    taken := taken[1:batch];
    taken_scopes := taken_scopes[1:batch];

    -- Parked behind a job that runs or is about to, never behind one that is not taken here: no other claim may want
    -- that.
    select array_agg(u.id) into to_park
    from unnest(ids, scopes) u (id, scope)
    where u.scope = any (locked_scopes) and u.scope <> all (coalesce(contended, '{}'))
        and u.id <> all (coalesce(taken, '{}'))
        and (u.scope = any (taken_scopes)
            or exists (select from reactor.jobs h where h.scope = u.scope and h.worker_id is not null));

    if to_park is not null and park then
        update reactor.jobs j set parked = true, changed_xid = txid_current() where j.id = any (to_park);
        parked_some := true;
    end if;

    -- A job that is claimed again is its own predecessor; the claim writes that row.
    if writable is not null and taken is not null then
        update reactor.jobs j set is_current = false, changed_xid = txid_current()
        where j.is_current and j.id <> all (taken)
            and j.scope in (select u.scope from unnest(ids, scopes) u (id, scope) where u.id = any (taken));
    end if;
end
$$;
comment on function reactor.take_scopes is 'The first jobs of a claim whose scopes are free; parks the others.';
