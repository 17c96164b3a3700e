-- Starts a new run of finished jobs, with a fresh quota. The old run stays in reactor.attempts, and dependants that
-- were cancelled because of it are restored.
--
-- A retry has a limited cost: a transaction starts up to 1,000 jobs over. The others are stored in reactor.retries, in
-- the same transaction; its caller and the pods continue with them. So that no job of a large retry runs before the
-- others are there, there are three stages, each of them done with before the next one begins:
--
--   start    the named jobs are suspended: waiting, with waiting_on = 0, so that no end of another job releases them;
--   restore  so are the jobs that were cancelled because of them, level by level;
--   release  each of them becomes pending or waiting, or is cancelled again, by what its predecessors are now. The last
--            that were suspended come first: their predecessors are suspended until then.
--
-- So at each moment a job has not started over yet and is as it was, or it is unfinished, and so is its pipeline.
--
-- Locks: the first transaction waits for the named jobs that have ended, by id. All else waits for nothing: what
-- another transaction has locked is put off, dependants and predecessors of the first transaction included. Two retries
-- that meet at the same jobs would otherwise lock them in different orders, one as named jobs and one as predecessors.

-- What is left of the ends of these jobs, which the caller has locked, must not happen any more. A transaction that is
-- doing it holds one of these rows and may add others, which only the next statement sees.
create or replace function reactor.forget_unresolved(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    while exists (select from reactor.unresolved u where u.depends_on = any (ids)) loop
        delete from reactor.unresolved u where u.depends_on = any (ids);
    end loop;
end
$$;

-- Starts finished jobs over, which the caller has locked, and suspends them.
create or replace function reactor.suspend_jobs(ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error,
        waited_seconds, queued_seconds)
    select j.id, j.attempt_id, j.attempts, j.locked_by, j.locked_at, coalesce(j.finished_at, clock_timestamp()),
        'retried', j.error, reactor.waited(j), reactor.queued(j)
    from reactor.jobs j where j.id = any (ids) and j.attempt_id is not null
    on conflict do nothing;

    -- A cancelled job released its key. Another job may hold it now, or another of the jobs that start over.
    update reactor.jobs j set idempotency_key = null
    where j.id = any (ids) and j.state = 'cancelled' and j.idempotency_key is not null and exists (
        select from reactor.jobs o
        where o.job_type = j.job_type and o.idempotency_key = j.idempotency_key
            and (o.phase <> 'cancelled' or o.id in (select unnest(ids)) and o.id < j.id));

    -- A new run has a fresh quota of each step, too.
    update reactor.steps s set attempts = 0, run_after = null, changed_xid = txid_current()
    from reactor.jobs j
    where j.id = any (ids) and j.step_counts is not null and s.job_id = j.id and s.state = 'pending' and s.attempts > 0;

    update reactor.jobs j set
        attempts = 0, attempt_id = null, quota = null, run_after = null, broken_by = null, error = null, result = null,
        progress = null, status_message = null, started_at = null, finished_at = null, parked = false,
        started_once = false, requeued_at = clock_timestamp(), ready_at = null,
        changed_xid = txid_current(), state = 'waiting', phase = 'waiting', waiting_on = 0
    where j.id = any (ids);
end
$$;

-- Those of these finished exclusive jobs that can't start over: another job holds the scope, or it is the turn of an
-- earlier one of them.
create or replace function reactor.find_refused(ids bigint[]) returns bigint[]
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    return array(
        select e.id
        from (select j.id, j.scope, row_number() over (partition by j.scope order by j.id) as place
            from reactor.jobs j where j.id = any (ids) and j.exclusive) e
        where e.place > 1 or exists (
            select from reactor.jobs o
            where o.scope = e.scope and o.exclusive and o.id <> e.id
                and (o.phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or o.holds_scope)));
end
$$;

-- Suspends those of these jobs that have ended. The first transaction of a retry waits for their locks, and is refused
-- if the scope of an exclusive one is taken. Later ones leave such a job as it is, and those that ended after the retry
-- was accepted: they have run again. `put_off`: the jobs that other transactions have locked.
create or replace function reactor.start_over(
    ids bigint[], accepted_at timestamptz, is_first boolean, out suspended bigint[], out put_off bigint[])
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
begin
    put_off := '{}';
    if is_first then
        -- Not one that is running, though it may be about to end: a settle locks those before any others.
        ids := array(
            select j.id from reactor.jobs j
            where j.id = any (ids) and j.state in ('completed', 'partial', 'failed', 'cancelled')
            order by j.id for no key update);
    else
        with ours as materialized (
            select j.id from reactor.jobs j where j.id = any (ids) order by j.id for no key update skip locked
        )
        select coalesce(array_agg(o.id), '{}'), array(
            select j.id from reactor.jobs j where j.id = any (start_over.ids) and j.id not in (select l.id from ours l))
        into ids, put_off
        from ours o;
    end if;
    -- A new statement, which sees them as they are now.
    suspended := array(
        select j.id from reactor.jobs j
        where j.id = any (ids) and j.state in ('completed', 'partial', 'failed', 'cancelled')
            and (is_first or j.finished_at is null or j.finished_at <= start_over.accepted_at)
        order by j.id);
    if not is_first then
        suspended := array(select h.id from unnest(suspended) h (id)
            where h.id not in (select unnest(reactor.find_refused(suspended))) order by h.id);
    end if;
    if cardinality(suspended) > 0 then
        perform reactor.forget_unresolved(suspended);
        perform reactor.suspend_jobs(suspended);
    end if;
end
$$;

-- Suspends up to `batch` jobs that were cancelled because of the suspended jobs `causes`, those that were cancelled
-- because of these, and so on. Returns what remains: the jobs that broke others, and of each the id after which to
-- continue. Those that it has suspended are among them if, after they were locked, they have broken others: a
-- producer or a large end may have added some meanwhile. `is_put_off`: other transactions have locked some.
create or replace function reactor.restore_dependants(
    inout causes bigint[], inout after_ids bigint[], batch int, out suspended bigint[], out is_put_off boolean)
-- Plans that were made while the tables were small must not read all of them later.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set jit = off
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off as $$
declare
    room int;
    found_causes bigint[];
    found_ids bigint[];
    ours bigint[];
begin
    suspended := '{}';
    is_put_off := false;
    loop
        room := batch - cardinality(suspended);
        -- One that was cancelled meanwhile restores nothing. (A comparison of rows can only use jobs_broken_by.)
        select coalesce(array_agg(r.id order by r.n), '{}'), coalesce(array_agg(r.after_id order by r.n), '{}')
        into causes, after_ids
        from unnest(causes, after_ids) with ordinality r (id, after_id, n)
        cross join lateral (
            select from reactor.jobs j where j.id = r.id and j.state = 'waiting' and j.waiting_on = 0 offset 0) j
        cross join lateral (
            select from reactor.jobs b
            where b.broken_by is not null and (b.broken_by, b.id) > (r.id, r.after_id)
                and (b.broken_by, b.id) <= (r.id, 9223372036854775807) and b.state = 'cancelled'
            order by b.broken_by, b.id limit 1) b;
        exit when cardinality(causes) = 0 or room <= 0 or is_put_off;

        with recursive broken (cause, id) as (
            select r.id, b.id
            from unnest(causes, after_ids) r (id, after_id)
            cross join lateral (
                select j.id from reactor.jobs j
                where j.broken_by is not null and (j.broken_by, j.id) > (r.id, r.after_id)
                    and (j.broken_by, j.id) <= (r.id, 9223372036854775807) and j.state = 'cancelled'
                order by j.broken_by, j.id limit room) b
            union
            -- Without `limit` the planner may read all cancelled jobs at each level.
            select b.id, j.id
            from broken b
            cross join lateral (
                select j.id from reactor.jobs j where j.broken_by = b.id and j.state = 'cancelled'
                order by j.broken_by, j.id limit room) j
        )
        select array_agg(b.cause), array_agg(b.id) into found_causes, found_ids
        from (select b.cause, b.id from broken b limit room) b;
        ours := array(
            select j.id from reactor.jobs j where j.id = any (found_ids) order by j.id for no key update skip locked);
        is_put_off := cardinality(ours) < cardinality(found_ids);
        ours := array(
            select j.id from reactor.jobs j
            where j.id = any (ours) and j.state = 'cancelled' and j.broken_by is not null order by j.id);
        -- If another job holds its exclusive scope by now, or gets it here, it stays cancelled.
        ours := array(select o.id from unnest(ours) o (id)
            where o.id not in (select unnest(reactor.find_refused(ours))) order by o.id);
        if cardinality(ours) > 0 then
            perform reactor.forget_unresolved(ours);
            perform reactor.suspend_jobs(ours);
            suspended := suspended || ours;
        end if;
        -- The next search begins behind what was found, or before the first that was locked.
        select array_agg(c.id), array_agg(c.after_id) into causes, after_ids
        from (
            select c.id, case when bool_or(c.is_new) then 0
                else coalesce(min(c.locked_id) - 1, max(c.found_id), max(c.after_id)) end as after_id
            from (
                select r.id, false as is_new, r.after_id, null::bigint as found_id, null::bigint as locked_id
                from unnest(causes, after_ids) r (id, after_id)
                union all
                select o.id, true, 0, null, null from unnest(ours) o (id)
                union all
                select f.cause, null, null, f.id,
                    case when is_put_off and f.id not in (select unnest(ours)) then f.id end
                from unnest(found_causes, found_ids) f (cause, id)) c
            group by c.id having bool_or(c.is_new) is not null) c;
    end loop;
end
$$;

-- Sets the states of suspended jobs. In the first transaction of a retry no other transaction knows that they are
-- waiting, so all that they depend on is locked. Later the end of a predecessor waits for the job's own lock.
-- `put_off`: jobs that other transactions have locked, or in the first transaction something that they depend on; and
-- there all jobs, if they depend on very much.
create or replace function reactor.release_suspended(
    ids bigint[], is_first boolean, out released bigint[], out put_off bigint[])
language plpgsql set search_path = pg_catalog, pg_temp
    set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    outdated bigint[];
    needed bigint[];
    locked bigint[];
begin
    released := ids;
    put_off := '{}';
    if not is_first then
        select coalesce(array_agg(o.id), '{}') into released from (
            select j.id from reactor.jobs j where j.id = any (ids) and j.state = 'waiting' and j.waiting_on = 0
            order by j.id for no key update skip locked) o;
        if cardinality(released) < cardinality(ids) then
            put_off := array(
                select j.id from reactor.jobs j
                where j.id = any (ids) and j.state = 'waiting' and j.waiting_on = 0 and j.id <> all (released));
        end if;
    elsif (select count(*) from (
        select from reactor.dependencies d where d.job_id = any (ids) limit 10001) e) > 10000
    then
        released := '{}';
        put_off := ids;
    end if;

    -- Needs that were met by an earlier run of a predecessor that has started over.
    outdated := array(
        select distinct d.depends_on
        from (select d.depends_on, d.needs from reactor.dependencies d
            where d.job_id = any (released) and d.resolved offset 0) d
        cross join lateral (select p.state from reactor.jobs p where p.id = d.depends_on offset 0) p
        where p.state <> 'completed' and (d.needs = 'completed' or p.state in ('waiting', 'pending', 'running')));
    needed := outdated;
    if is_first then
        needed := array(
            select n.id from unnest(outdated) n (id) where n.id not in (select unnest(ids))
            union
            select d.depends_on from reactor.dependencies d
            where d.job_id = any (released) and d.resolved is not true and d.depends_on not in (select unnest(ids)));
    end if;
    if cardinality(needed) > 0 then
        locked := array(select j.id from reactor.jobs j where j.id = any (needed) order by j.id for share skip locked);
        if cardinality(locked) < cardinality(needed) then
            put_off := put_off || array(
                select distinct d.job_id from reactor.dependencies d
                where d.job_id = any (released) and d.depends_on = any (needed) and d.depends_on <> all (locked)
                    and (is_first or d.resolved));
            released := array(select r.id from unnest(released) r (id) where r.id <> all (put_off));
        end if;
    end if;
    if cardinality(outdated) > 0 then
        update reactor.dependencies d set resolved = false
        from (
            select e.job_id, e.depends_on
            from (select e.job_id, e.depends_on, e.needs from reactor.dependencies e
                where e.job_id = any (released) and e.resolved offset 0) e
            cross join lateral (select p.state from reactor.jobs p where p.id = e.depends_on offset 0) p
            where e.depends_on in (select unnest(outdated)) and p.state <> 'completed'
                and (e.needs = 'completed' or p.state in ('waiting', 'pending', 'running'))
            offset 0) e
        where d.job_id = e.job_id and d.depends_on = e.depends_on;
    end if;
    if cardinality(released) > 0 then
        perform reactor.recompute_dependencies(released);
        perform reactor.resolve_ended(released);
    end if;
end
$$;

-- Starts a new run of finished jobs, up to 1,000 with their dependants. If there are more, these are suspended, and
-- the rest is left in reactor.retries: a caller may continue with reactor.retry_more, and pods do.
create or replace function reactor.retry(ids bigint[]) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    batch constant int := 1000;
    named bigint[] := array(select distinct i.id from unnest(ids) i (id) where i.id is not null order by i.id);
    accepted timestamptz;
    refused bigint[];
    suspended bigint[];
    restored bigint[] := '{}';
    unreleased bigint[];
    causes bigint[];
    after_ids bigint[];
    retry_id bigint;
begin
    select max(j.finished_at), array_agg(j.id) filter (where j.exclusive) into accepted, refused
    from reactor.jobs j
    where j.id = any (named) and j.state in ('completed', 'partial', 'failed', 'cancelled');
    -- Not before the end of any of them, though the clock may have been set back.
    accepted := greatest(clock_timestamp(), accepted);
    if cardinality(named) > batch then
        refused := reactor.find_refused(refused);
        if cardinality(refused) > 0 then
            raise exception 'reactor: the exclusive scope of job % is taken', refused[1]
                using errcode = 'unique_violation', constraint = 'jobs_exclusive_scope_is_busy',
                hint = 'Nothing was changed. Wait for the job that holds the scope, or cancel it.';
        end if;
    end if;
    suspended := (reactor.start_over(named[:batch], accepted, true)).suspended;
    causes := suspended;
    after_ids := array_fill(0::bigint, array[cardinality(suspended)]);
    if cardinality(named) <= batch then
        select r.causes, r.after_ids, r.suspended into causes, after_ids, restored
        from reactor.restore_dependants(causes, after_ids, batch - cardinality(suspended)) r;
    end if;
    suspended := suspended || restored;
    unreleased := suspended;
    if cardinality(causes) = 0 then
        unreleased := (reactor.release_suspended(suspended, true)).put_off;
    end if;
    if cardinality(named) <= batch and cardinality(causes || unreleased) = 0 then
        return query select j.id, j.state from reactor.jobs j where j.id = any (suspended) order by j.id;
        return;
    end if;

    insert into reactor.retries (accepted_at) values (accepted) returning reactor.retries.id into retry_id;
    perform reactor.add_retry_parts(retry_id, 'start', 0, named[batch + 1:], null);
    perform reactor.add_retry_parts(retry_id, 'restore', 0, causes, after_ids);
    perform reactor.add_retry_parts(retry_id, 'release', 0, unreleased, null);
    perform reactor.notify_jobs();  -- the next claim of a pod continues
    return query select j.id, j.state from reactor.jobs j where j.id = any (suspended) order by j.id;
end
$$;
comment on function reactor.retry is
    'Starts a new run of finished jobs; returns those that will run again, restored dependants included. '
    'Of more than 1,000 jobs it returns the first ones; reactor.retry_more and the pods do the rest.';

-- Stores what is left of a stage of a retry.
create or replace function reactor.add_retry_parts(
    retry_id bigint, todo text, tries int, ids bigint[], after_ids bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into reactor.retry_parts (retry_id, todo, tries, ids, after_ids)
    select add_retry_parts.retry_id, add_retry_parts.todo, add_retry_parts.tries, add_retry_parts.ids[n:n + 999],
        add_retry_parts.after_ids[n:n + 999]
    from generate_series(1, cardinality(add_retry_parts.ids), 1000) n;
end
$$;

-- Continues a retry, `single`: that one or any that is due, with up to `batch` jobs. Each call is a transaction of its
-- own, and waits for nothing. `lease_seconds`: how long pods leave the rest to the caller. Returns the jobs that were
-- released, and when to call it again: 0: now, NULL: nothing is left.
create or replace function reactor.retry_more(
    batch int, single bigint default null, lease_seconds float8 default 0,
    out ids bigint[], out states text[], out next_in_seconds float8)
language plpgsql set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    retry reactor.retries;
    part reactor.retry_parts;
    room int := batch;
    suspended bigint[];
    released bigint[] := '{}';
    put_off bigint[];
    is_put_off boolean := false;
    is_done boolean := false;
begin
    if single is null then
        select r.* into retry from reactor.retries r where r.not_before <= (select clock_timestamp())
        order by r.not_before limit 1 for update skip locked;
    else
        select r.* into retry from reactor.retries r where r.id = single for update skip locked;
    end if;
    if retry.id is not null then
        begin
            while room > 0 and not is_put_off loop
                select p.* into part from reactor.retry_parts p
                where p.retry_id = retry.id
                order by case p.todo when 'start' then 1 when 'restore' then 2 else 3 end, p.tries,
                    case p.todo when 'release' then - p.id else p.id end
                limit 1 for update;
                is_done := not found;
                exit when is_done;
                delete from reactor.retry_parts p where p.id = part.id;
                if part.todo = 'restore' then
                    select r.causes, r.after_ids, r.suspended, r.is_put_off
                    into part.ids, part.after_ids, suspended, is_put_off
                    from reactor.restore_dependants(part.ids, part.after_ids, room) r;
                    perform reactor.add_retry_parts(
                        retry.id, 'restore', part.tries + is_put_off::int, part.ids, part.after_ids);
                    perform reactor.add_retry_parts(retry.id, 'release', 0, suspended, null);
                    room := room - cardinality(suspended);
                    continue;
                end if;
                if part.todo = 'start' then
                    select r.suspended, r.put_off into suspended, put_off
                    from reactor.start_over(part.ids[:room], retry.accepted_at, false) r;
                    perform reactor.add_retry_parts(
                        retry.id, 'restore', 0, suspended, array_fill(0::bigint, array[cardinality(suspended)]));
                    perform reactor.add_retry_parts(retry.id, 'release', 0, suspended, null);
                else
                    select r.released, r.put_off into suspended, put_off
                    from reactor.release_suspended(part.ids[:room], false) r;
                    released := released || suspended;
                end if;
                perform reactor.add_retry_parts(retry.id, part.todo, part.tries, part.ids[room + 1:], null);
                perform reactor.add_retry_parts(retry.id, part.todo, part.tries + 1, put_off, null);
                is_put_off := cardinality(put_off) > 0;
                room := room - cardinality(part.ids);
            end loop;
        exception when unique_violation or deadlock_detected then
            -- Another transaction took a scope or a key at this moment: the next call sees that.
            released := '{}';
            is_put_off := true;
            is_done := false;
        end;
        if is_done then
            delete from reactor.retries r where r.id = retry.id;
        else
            update reactor.retries r set
                not_before = clock_timestamp() + make_interval(secs => greatest(
                    lease_seconds, case when is_put_off then 0.1 else 0 end))
            where r.id = retry.id;
        end if;
        select array_agg(j.id), array_agg(j.state) into ids, states
        from reactor.jobs j where j.id = any (released);
    end if;

    if single is null then
        select greatest(extract(epoch from r.not_before - clock_timestamp())::float8,
            -- If none could be taken, other transactions are doing the rest.
            case when retry.id is null then 0.1 else 0 end)
        into next_in_seconds
        from reactor.retries r order by r.not_before limit 1;
        if next_in_seconds = 0 then
            perform reactor.notify_jobs();
        end if;
    elsif not is_done and exists (select from reactor.retries r where r.id = single) then
        next_in_seconds := case when retry.id is null or is_put_off then 0.1 else 0 end;
    end if;
end
$$;
comment on function reactor.retry_more is
    'Continues a large retry in a short transaction; returns jobs that will run again, and says when to call it again.';
