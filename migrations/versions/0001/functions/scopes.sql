-- Scopes: a worker holds at most one job of a scope. A claim that finds a job's scope busy parks the job, so that
-- further claims don't see it; the end of the job that holds the scope unparks the next ones.
--
-- A scope is taken, and its jobs are parked and unparked, under the lock of its bucket (reactor.scope_locks). Locks are
-- tried and never waited for, so they can't be part of a deadlock. A claim that fails to get one leaves the scope and
-- comes back. A release that fails to get one, or that finds the next job's row locked, writes the scope to
-- reactor.freed_scopes in the same transaction, and the next claim continues from there. Nothing is forgotten: a claim
-- that parks a job has the lock, and reads afterwards whether the scope is held. If the release was committed before,
-- the claim sees it. If not, the release gets the lock later and sees the parked job, or fails to get it and leaves the
-- row.

create or replace function reactor.scope_bucket(scope text) returns int
language sql immutable parallel safe return hashtext(scope) & 4095;

-- Tries to lock scopes. Returns those that it has locked.
create or replace function reactor.lock_scopes(scopes text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return array(
        with locked as materialized (
            select l.bucket from reactor.scope_locks l
            where l.bucket = any (array(select distinct reactor.scope_bucket(s.scope) from unnest(scopes) s (scope)))
            for no key update skip locked
        )
        select s.scope from (select distinct u.scope from unnest(scopes) u (scope)) s
        where reactor.scope_bucket(s.scope) in (select l.bucket from locked l));
end
$$;
comment on function reactor.lock_scopes is 'Tries to lock scopes until the end of the transaction; returns the locked.';

-- Unparks the first job of each of these scopes that is free, one per queue and type: the pods of one queue, or with
-- the handler of one type, may be gone, and the other jobs must not wait for them. A claim parks the surplus again.
-- Returns the scopes that are left because something was locked, or because there are more than a transaction should
-- handle.
create or replace function reactor.unpark(scopes text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    locked_scopes text[] := reactor.lock_scopes(scopes[1:1000]);
    heads bigint[];
    unparked bigint[];
    left_scopes text[];
begin
    -- A new statement, which sees what committed before the lock.
    select array_agg(head.id) into heads
    from unnest(locked_scopes) free (scope)
    cross join lateral (
        with recursive kind (queue, job_type) as (
            (select p.queue, p.job_type from reactor.jobs p
                where p.scope = free.scope and p.phase in ('ready', 'parked')
                order by p.queue, p.job_type limit 1)
            union all
            select next.queue, next.job_type from kind cross join lateral (
                select p.queue, p.job_type from reactor.jobs p
                where p.scope = free.scope and p.phase in ('ready', 'parked')
                    and (p.queue, p.job_type) > (kind.queue, kind.job_type)
                order by p.queue, p.job_type limit 1) next
        )
        select kind.queue, kind.job_type from kind limit 100
    ) kind
    cross join lateral (
        select p.id, p.parked from reactor.jobs p
        where p.scope = free.scope and p.phase in ('ready', 'parked')
            and p.queue = kind.queue and p.job_type = kind.job_type
            -- Not one that this transaction has inserted, and that will wait for others when it commits.
            and not (p.inserted_xid = txid_current() and exists (
                select from reactor.dependencies d where d.job_id = p.id and d.resolved is null))
        order by p.priority, p.id limit 1
    ) head
    where head.parked
        and not exists (select from reactor.jobs h where h.scope = free.scope and h.holds_scope);

    if heads is not null then
        unparked := array(select j.id from reactor.jobs j where j.id = any (heads) order by j.id
            for no key update skip locked);
        update reactor.jobs j set parked = false, phase = 'ready', changed_xid = txid_current()
        where j.id = any (unparked) and j.phase = 'parked';
        left_scopes := array(select j.scope from reactor.jobs j
            where j.id = any (array(select unnest(heads) except select unnest(unparked))));
    end if;
    return array(
        select unnest(scopes) except select unnest(locked_scopes)
        union select unnest(left_scopes));
end
$$;
comment on function reactor.unpark is 'Unparks the next jobs of free scopes; returns the scopes that are left.';

-- After a job has released its scope: unparks the next jobs, or records what is left for the next claim.
create or replace function reactor.free_scopes(scopes text[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into reactor.freed_scopes (scope) select unnest(reactor.unpark(scopes));
end
$$;

-- Continues what free_scopes has left, for at most 200 scopes. Returns whether some are still left.
create or replace function reactor.free_more_scopes() returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    rows tid[];
    scopes text[];
    left_scopes text[];
begin
    select array_agg(f.ctid), array_agg(f.scope) into rows, scopes
    from (select r.ctid, r.scope from reactor.freed_scopes r limit 200 for update skip locked) f;
    if rows is null then
        return exists (select from reactor.freed_scopes);
    end if;
    left_scopes := reactor.unpark(scopes);
    delete from reactor.freed_scopes f using unnest(rows, scopes) r (row, scope)
    where f.ctid = r.row and r.scope <> all (left_scopes);
    return exists (select from reactor.freed_scopes);
end
$$;
comment on function reactor.free_more_scopes is
    'Unparks the next jobs of scopes that were locked when they were freed.';

-- Takes the scopes of the first `batch` of these jobs whose scopes are free. The caller has locked the jobs' rows. With
-- `in_order`, the oldest ready or parked job of the same scope, queue and type is taken instead, and the jobs that must
-- wait for their scope are parked. If the oldest has another lane and is not one of these jobs, none of that queue and
-- type is taken: its lane may have limits, and it is claimed in the turn of its line. `parked_some`: jobs were parked;
-- `left_some`: scopes that could not be decided, because another transaction has locked something.
create or replace function reactor.take_scopes(
    ids bigint[], scopes text[], batch int, in_order boolean, out taken bigint[], out parked_some boolean,
    out left_some boolean)
language plpgsql set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
    locked_scopes text[] := reactor.lock_scopes(array_remove(scopes, null));
    held text[];       -- by a worker
    undecided text[];  -- free, but something of them is locked
    leads text[];      -- free; the jobs that come first:
    leaders bigint[];
    places bigint[];
    led bigint[];      -- jobs behind one of another lane
    to_park bigint[];
    writable bigint[];
begin
    -- New statements see the claims and releases that came before the locks. From here on no other transaction takes
    -- these scopes. (`in (select unnest(...))` is hashed; `= any (...)` would compare each row with each element.)
    held := array(select h.scope from reactor.jobs h where h.scope = any (locked_scopes) and h.holds_scope);

    -- The current job of a scope that is taken ceases to be current. Its row may be locked.
    writable := array(
        select j.id from reactor.jobs j
        where j.scope = any (locked_scopes) and j.is_current and j.scope not in (select unnest(held))
        for no key update skip locked);
    undecided := array(
        select j.scope from reactor.jobs j
        where j.scope = any (locked_scopes) and j.is_current and j.scope not in (select unnest(held))
            and j.id not in (select unnest(writable)));

    with candidate as materialized (
        select u.id, u.scope, u.n, c.queue, c.job_type, c.lane
        from unnest(ids, scopes) with ordinality u (id, scope, n)
        join reactor.jobs c on c.id = u.id
        where u.scope in (select unnest(locked_scopes)) and u.scope not in (select unnest(held))
            and u.scope not in (select unnest(undecided))
    ), kind as materialized (
        select f.scope, f.queue, f.job_type, f.n, case when in_order then h.id else f.id end as leader,
            not in_order or h.lane is not distinct from f.lane or h.id in (select unnest(ids)) as leads
        from (
            select distinct on (c.scope, c.queue, c.job_type) c.* from candidate c
            order by c.scope, c.queue, c.job_type, c.n
        ) f
        cross join lateral (
            select p.id, p.lane from reactor.jobs p
            where p.scope = f.scope and p.phase in ('ready', 'parked') and p.queue = f.queue
                and p.job_type = f.job_type and p.attempts < coalesce(p.max_attempts, p.quota, 2147483647)
            order by p.priority, p.id limit 1
        ) h
    ), first as (
        select distinct on (k.scope) k.scope, k.leader, k.n from kind k where k.leads order by k.scope, k.n
    )
    select array_agg(f.scope), array_agg(f.leader), array_agg(f.n), array(
        select c.id from candidate c join kind k using (scope, queue, job_type) where not k.leads)
    into leads, leaders, places, led
    from first f;
    if exists (select from unnest(leaders) l (id) where l.id not in (select unnest(ids))) then
        -- Other transactions may have locked the leaders that are not among the caller's, or changed them.
        leaders := array(
            select l.id from unnest(leaders) with ordinality w (id, n)
            left join (
                select j.id from reactor.jobs j
                where j.id = any (leaders) and j.phase in ('ready', 'parked')
                for no key update skip locked) l using (id)
            order by w.n);
        undecided := undecided || array(
            select l.scope from unnest(leads, leaders) l (scope, id) where l.id is null);
    end if;

    taken := array(
        select t.id from (
            select u.id, u.n from unnest(ids, scopes) with ordinality u (id, scope, n) where u.scope is null
            union all
            select l.id, l.n from unnest(leaders, places) l (id, n) where l.id is not null
        ) t order by t.n limit batch);
    leads := array(select l.scope from unnest(leads, leaders) l (scope, id) where l.id in (select unnest(taken)));
    left_some := undecided <> '{}' or exists (
        select from unnest(scopes) s (scope)
        where s.scope is not null and s.scope not in (select unnest(locked_scopes)));

    -- A job that is claimed again is its own predecessor; the claim writes that row.
    if writable <> '{}' then
        update reactor.jobs j set is_current = false, changed_xid = txid_current()
        where j.id = any (writable) and j.scope in (select unnest(leads)) and j.id not in (select unnest(taken));
    end if;

    -- Parked behind a job that runs or is about to, or behind one that leads from another line: whatever happens to
    -- that one frees the scope. Never behind another that is not taken here: no other claim may want that.
    to_park := array(
        select u.id from unnest(ids, scopes) u (id, scope)
        where in_order and (u.scope in (select unnest(held || leads)) or u.id in (select unnest(led)))
            and u.id not in (select unnest(taken)));
    parked_some := to_park <> '{}';
    if parked_some then
        update reactor.jobs j set parked = true, phase = 'parked', changed_xid = txid_current()
        where j.id = any (to_park);
    end if;
end
$$;
comment on function reactor.take_scopes is 'The first jobs of a claim whose scopes are free; parks the others.';
