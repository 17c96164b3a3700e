-- Starts a new run of finished jobs, with a fresh quota. The old run stays in reactor.attempts, and dependants that
-- were cancelled because of it are restored.
create or replace function reactor.retry(ids bigint[]) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    retried bigint[];
    restored bigint[];
    known bigint[];
begin
    -- Repeats until no other transaction has committed a dependant while this one waited for locks.
    loop
        known := restored;
        with recursive broken (id) as (
            select j.id from reactor.jobs j where j.broken_by = any (ids) and j.state = 'cancelled'
            union
            select j.id from broken join reactor.jobs j on j.broken_by = broken.id and j.state = 'cancelled'
        )
        select coalesce(array_agg(broken.id order by broken.id), '{}') into restored from broken
            where broken.id <> all (ids);
        exit when restored = known;
        -- Lock order: predecessors first, the rest by id.
        perform reactor.lock_predecessors(ids || restored);
        perform from reactor.jobs j where j.id = any (ids || restored) order by j.id for no key update;
    end loop;
    select array_agg(x.id) filter (where x.id = any (ids)), array_agg(x.id) filter (where x.id = any (restored))
    into retried, restored
    from (
        select j.id from reactor.jobs j
        where (j.id = any (ids) and j.state in ('completed', 'partial', 'failed', 'cancelled'))
            or (j.id = any (restored) and j.state = 'cancelled' and j.broken_by is not null
                -- If another job holds its exclusive scope by now, or gets it here, it stays cancelled; the others are
                -- restored.
                and not (j.exclusive and exists (
                    select from reactor.jobs o
                    where o.scope = j.scope and o.exclusive and o.id <> j.id
                        and (o.phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or o.id = any (ids)
                            or o.id = any (restored) and o.id < j.id and o.state = 'cancelled'
                                and o.broken_by is not null))))
        order by j.id for no key update) x;
    if retried is null then
        return;
    end if;

    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error)
    select j.id, j.attempt_id, j.attempts, j.locked_by, j.locked_at, coalesce(j.finished_at, clock_timestamp()),
        'retried', j.error
    from reactor.jobs j where j.id = any (retried) and j.attempt_id is not null
    on conflict do nothing;

    -- A cancelled job released its key. Another job may hold it now, or another of the jobs that start over.
    update reactor.jobs j set idempotency_key = null
    where j.id = any (retried || restored) and j.state = 'cancelled' and j.idempotency_key is not null and exists (
        select from reactor.jobs o
        where o.job_type = j.job_type and o.idempotency_key = j.idempotency_key
            and (o.phase <> 'cancelled' or o.id = any (retried || restored) and o.id < j.id));

    update reactor.jobs j set
        attempts = 0, attempt_id = null, quota = null, run_after = null, broken_by = null, error = null, result = null,
        progress = null, status_message = null, started_at = null, finished_at = null, parked = false,
        changed_xid = txid_current(), state = 'waiting', phase = 'waiting'
    where j.id = any (retried || restored);

    -- Where both jobs of an edge start over, the one waits for the other again.
    update reactor.dependencies d set resolved = false
    where d.job_id = any (retried || restored) and d.depends_on = any (retried || restored) and d.resolved;
    perform reactor.recompute_dependencies(retried || restored);
    return query select j.id, j.state from reactor.jobs j where j.id = any (retried || restored) order by j.id;
end
$$;
comment on function reactor.retry is
    'Starts a new run of finished jobs; returns every job that will run again, restored dependants included.';
