-- What operators do and what needs more than one statement.

-- A new run for finished jobs, with a fresh quota. The old one stays in reactor.attempts, and the dependants that were
-- cancelled because of it wait again.
create function reactor.retry(ids bigint[]) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    again bigint[];
    back bigint[];
    known bigint[];
begin
    -- Until nobody has committed another dependant while we waited for locks.
    loop
        known := back;
        with recursive broken (id) as (
            select j.id from reactor.jobs j where j.broken_by = any (ids) and j.state = 'cancelled'
            union
            select j.id from broken join reactor.jobs j on j.broken_by = broken.id and j.state = 'cancelled'
        )
        select coalesce(array_agg(broken.id order by broken.id), '{}') into back from broken where broken.id <> all (ids);
        exit when back = known;
        -- Predecessors first, as everywhere; the rest in id order.
        perform reactor.lock_predecessors(ids || back);
        perform from reactor.jobs j where j.id = any (ids || back) order by j.id for no key update;
    end loop;
    select array_agg(x.id) filter (where x.id = any (ids)), array_agg(x.id) filter (where x.id = any (back))
    into again, back
    from (
        select j.id from reactor.jobs j
        where (j.id = any (ids) and j.state in ('completed', 'partial', 'failed', 'cancelled'))
            or (j.id = any (back) and j.state = 'cancelled' and j.broken_by is not null
                -- Somebody else has its exclusive scope by now, or gets it here: it stays cancelled, and does not hold up
                -- the others.
                and not (j.exclusive and exists (
                    select from reactor.jobs o
                    where o.scope = j.scope and o.exclusive and o.id <> j.id
                        and (o.state in ('waiting', 'pending', 'running') or o.id = any (ids)
                            or o.id = any (back) and o.id < j.id and o.state = 'cancelled' and o.broken_by is not null))))
        order by j.id for no key update) x;
    if again is null then
        return;
    end if;

    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error)
    select j.id, j.attempt_id, j.attempts, j.locked_by, j.locked_at, coalesce(j.finished_at, clock_timestamp()), 'retried',
        j.error
    from reactor.jobs j where j.id = any (again) and j.attempt_id is not null
    on conflict do nothing;

    -- A cancelled job gave its key free; somebody may have it now, or another of those that start anew.
    update reactor.jobs j set idempotency_key = null
    where j.id = any (again || back) and j.state = 'cancelled' and j.idempotency_key is not null and exists (
        select from reactor.jobs o
        where o.job_type = j.job_type and o.idempotency_key = j.idempotency_key
            and (o.state <> 'cancelled' or o.id = any (again || back) and o.id < j.id));

    update reactor.jobs j set
        attempts = 0, attempt_id = null, quota = null, run_after = null, broken_by = null, error = null, result = null,
        progress = null, status_message = null, started_at = null, finished_at = null, parked = false,
        changed = pg_current_xact_id(), state = 'waiting'
    where j.id = any (again || back);

    -- Where both ends start anew, the one waits for the other again.
    update reactor.dependencies d set resolved = false
    where d.job_id = any (again || back) and d.depends_on = any (again || back) and d.resolved;
    perform reactor.reconsider(again || back);
    return query select j.id, j.state::text from reactor.jobs j where j.id = any (again || back) order by j.id;
end
$$;
comment on function reactor.retry is 'Starts finished jobs anew; returns every job that is to run again.';

-- Cancels jobs that have not finished. A running one loses its fence at once, so that its attempt can write nothing more,
-- and its worker is told; worker_id stays, and with it the scope, until the handler has stopped.
-- Lock order: running rows, as a settle has them; then scopes, as a settle takes them next; then the rest.
create function reactor.cancel(ids bigint[], reason text) returns table (id bigint, was text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    perform from reactor.jobs j where j.id = any (ids) and j.state = 'running' order by j.id for no key update;
    perform reactor.lock_scopes(array(
        select j.scope from reactor.jobs j
        where j.id = any (ids) and j.scope is not null and j.state in ('waiting', 'pending')));
    return query
        with target as materialized (
            select j.id, j.state, j.attempt_id, j.attempts, j.locked_by, j.locked_at, j.worker_id
            from reactor.jobs j
            where j.id = any (ids) and j.state in ('waiting', 'pending', 'running')
            order by j.id for no key update
        ), kept as (
            insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
            select t.id, t.attempt_id, t.attempts, t.locked_by, t.locked_at, 'preempted', reason
            from target t where t.state = 'running'
        ), told as (
            select pg_notify('reactor_cancel', json_build_object(
                'worker_id', t.worker_id, 'job_id', t.id, 'attempt_id', t.attempt_id)::text)
            from target t where t.state = 'running'
        ), cancelled as (
            update reactor.jobs j set
                state = 'cancelled', attempt_id = null, run_after = null, parked = false, error = reason,
                finished_at = clock_timestamp(), changed = pg_current_xact_id()
            from target t where j.id = t.id and (select count(*) from told) >= 0
            returning j.id
        )
        select t.id, t.state::text from target t join cancelled c on c.id = t.id;
end
$$;
comment on function reactor.cancel is 'Cancels unfinished jobs, for a reason; returns those it found, with the state they were in.';

-- Takes leave of workers whose lease is over. A heartbeat that has not committed yet has the row locked, and is passed by.
create function reactor.bury() returns void
language sql set search_path = pg_catalog, pg_temp as $$
    update reactor.workers w set ended_at = clock_timestamp()
    from (
        select d.id from reactor.workers d where d.ended_at is null and d.lease_until <= clock_timestamp()
        order by d.id for no key update skip locked) dead
    where w.id = dead.id
$$;

-- Puts back what workers hold that have ended, at most `batch` jobs: again while attempts are left, else failed. Jobs that
-- were taken from them before (cancelled ones) only give their scope free. With `single` that one job, with a fresh quota.
create function reactor.sweep(batch int, single bigint default null) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    perform reactor.bury();
    -- A new statement, which sees who has been buried.
    return query
        with dead as materialized (
            select j.id, j.attempt_id, j.worker_id, j.state as fence, j.attempts,
                single is not null or j.attempts < j.quota as again
            from reactor.jobs j
            where j.worker_id is not null and (single is null or j.id = single and j.state = 'running')
                and not exists (select from reactor.workers w where w.id = j.worker_id and w.ended_at is null)
            order by j.id limit batch
            for no key update skip locked
        ), swept as (
            update reactor.jobs j set
                state = case when d.fence <> 'running' then j.state when d.again then 'pending' else 'failed' end,
                attempt_id = case when d.fence = 'running' and d.again then null else j.attempt_id end,
                finished_at = case when d.fence = 'running' and not d.again then clock_timestamp() else j.finished_at end,
                attempts = case when single is not null then 0 else j.attempts end,
                error = case when d.fence <> 'running' then j.error
                    else format('The pod %s died or fell silent during attempt %s.', j.locked_by, j.attempts) end,
                worker_id = null,
                changed = pg_current_xact_id()
            from dead d
            where j.id = d.id and j.worker_id = d.worker_id and j.state = d.fence
                and j.attempt_id is not distinct from d.attempt_id
            returning j.id, j.state, d.attempts, j.locked_by, j.locked_at, j.error, d.attempt_id, d.fence
        ), kept as (
            insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
            select s.id, s.attempt_id, s.attempts, s.locked_by, s.locked_at, 'lease_lost', s.error
            from swept s where s.fence = 'running' and s.state = 'pending'
        )
        select s.id, s.state::text from swept s;
end
$$;
comment on function reactor.sweep is 'Puts back the jobs of workers that are dead; returns them with their new states.';

-- Makes the part of the archive that holds one month, if it is not there.
create function reactor.open_archive(month timestamptz) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    first timestamp := date_trunc('month', month at time zone 'UTC');
    part text := 'archive_' || to_char(first, 'YYYY_MM');
begin
    if to_regclass('reactor.' || part) is null then
        -- Two at once: the second waits, and finds it made.
        perform pg_advisory_xact_lock(hashtext('reactor.open_archive'));
        execute format('create table if not exists reactor.%I partition of reactor.archive for values from (%L) to (%L)',
            part, first at time zone 'UTC', (first + interval '1 month') at time zone 'UTC');
    end if;
end
$$;

-- Looks through the next `batch` jobs after the id `after_id`, and removes the whole pipelines among them whose jobs all ended, in
-- one of these states, more than `age_seconds` ago, and that no handler is still busy with. The newest run of each scope
-- stays if `keep_current`. In the order of ids, so that whoever calls this again with `last_id` passes each job once, however
-- many are kept; last_id is NULL when nothing old is left. Nobody is waited for: a pipeline of which somebody has a row
-- locked (it is being retried, say) stays for the next time. With `archive` they are copied to reactor.archive first; with
-- `dry_run` they are only counted, each with its first job.
create function reactor.prune(
    age_seconds float8, states text[], batch int, keep_current boolean, after_id bigint default 0, archive boolean default false,
    dry_run boolean default false, out pipelines int, out jobs int, out last_id bigint)
language plpgsql set search_path = pg_catalog, pg_temp
    -- The table's size must not talk the planner into reading all of it for one batch.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    before timestamptz := clock_timestamp() - make_interval(secs => age_seconds);
    old uuid[];
    gone bigint[];
    any_old boolean;
begin
    select max(w.id), bool_or(w.created_at < before),
        array_agg(distinct w.pipeline_id) filter (where w.finished_at < before and w.state = any (states))
    into last_id, any_old, old
    from (select j.id, j.pipeline_id, j.created_at, j.finished_at, j.state from reactor.jobs j
        where j.id > after_id order by j.id limit batch) w;
    -- Ids grow with the time: after a whole batch of young ones there are no old ones.
    if not any_old then
        last_id := null;
    end if;
    if dry_run then
        select count(*), coalesce(sum(w.size), 0) into pipelines, jobs from (
            select count(*) as size from reactor.jobs j where j.pipeline_id = any (old) group by j.pipeline_id
            having min(j.id) > after_id and bool_and(coalesce(j.finished_at < before and j.state = any (states)
                and j.worker_id is null and not (keep_current and j.is_current), false))) w;
        return;
    end if;
    -- A locked row is read as it is then, whoever changed it since the statement began.
    with mine as materialized (
        select j.id, j.pipeline_id, coalesce(j.finished_at < before and j.state = any (states)
            and j.worker_id is null and not (keep_current and j.is_current), false) as is_old
        from reactor.jobs j where j.pipeline_id = any (old) order by j.id for update skip locked
    ), whole as materialized (
        select m.pipeline_id, array_agg(m.id) as ids from mine m group by m.pipeline_id
        having bool_and(m.is_old) and count(*) = (select count(*) from reactor.jobs o where o.pipeline_id = m.pipeline_id)
    )
    select count(distinct w.pipeline_id), count(i.id), array_agg(i.id) into pipelines, jobs, gone
    from whole w cross join lateral unnest(w.ids) i (id);
    if pipelines = 0 then
        return;
    end if;
    if archive then
        perform reactor.open_archive(m.month) from (
            select distinct date_trunc('month', j.finished_at, 'UTC') as month from reactor.jobs j where j.id = any (gone)) m;
        insert into reactor.archive (id, pipeline_id, job_type, state, finished_at, job, steps, attempts)
        select j.id, j.pipeline_id, j.job_type, j.state, j.finished_at, to_jsonb(j),
            (select jsonb_agg(to_jsonb(s) order by s.position) from reactor.steps s where s.job_id = j.id),
            (select jsonb_agg(to_jsonb(a) order by a.number) from reactor.attempts a where a.job_id = j.id)
        from reactor.jobs j where j.id = any (gone);
    end if;
    delete from reactor.jobs j where j.id = any (gone);
end
$$;
comment on function reactor.prune is
    'Removes whole pipelines that ended long ago, from one batch of jobs; returns how many, how many jobs, and where to go on.';

-- What should never be needed: jobs that wait although nothing they need is open. Returns those put right.
create function reactor.reconcile(batch int) returns setof bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    ids bigint[];
begin
    select array_agg(x.id) into ids from (
        select j.id from reactor.jobs j
        where j.state = 'waiting' and not exists (
            select from reactor.dependencies d join reactor.jobs p on p.id = d.depends_on
            where d.job_id = j.id and not d.resolved and p.state in ('waiting', 'pending', 'running'))
        order by j.id limit batch for no key update skip locked) x;
    if ids is not null then
        perform reactor.lock_predecessors(ids);
        perform reactor.reconsider(ids);
        return query select unnest(ids);
    end if;
end
$$;
comment on function reactor.reconcile is 'Puts right jobs that wait without reason; each one is a bug found.';
