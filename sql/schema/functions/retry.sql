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
            -- Without `offset 0` the planner may read all cancelled jobs at each level.
            select j.id from broken cross join lateral (
                select b.id from reactor.jobs b where b.broken_by = broken.id and b.state = 'cancelled' offset 0) j
        )
        select coalesce(array_agg(broken.id order by broken.id), '{}') into restored from broken
            where broken.id not in (select unnest(ids));
        exit when restored = known;
        -- Lock order: predecessors first, the rest by id.
        perform reactor.lock_predecessors(ids || restored);
        perform from reactor.jobs j where j.id = any (ids || restored) order by j.id for no key update;
        -- What is left of their ends must not happen any more. A transaction that is doing it holds one of these rows
        -- and may add others, which only the next statement sees.
        loop
            delete from reactor.unresolved u where u.depends_on = any (ids || restored);
            exit when not exists (select from reactor.unresolved u where u.depends_on = any (ids || restored));
        end loop;
    end loop;
    -- Long arrays are turned into sets: a comparison with each element would take quadratic time.
    select array_agg(x.id) filter (where x.is_named), array_agg(x.id) filter (where not x.is_named)
    into retried, restored
    from (
        select j.id, j.id in (select unnest(ids)) as is_named from reactor.jobs j
        where j.id = any (ids || restored)
            and case when j.id in (select unnest(ids)) then j.state in ('completed', 'partial', 'failed', 'cancelled')
                -- If another job holds its exclusive scope by now, or gets it here, it stays cancelled; the others are
                -- restored.
                else j.state = 'cancelled' and j.broken_by is not null and not (j.exclusive and exists (
                    select from reactor.jobs o
                    where o.scope = j.scope and o.exclusive and o.id <> j.id
                        and (o.phase in ('waiting', 'ready', 'scheduled', 'parked', 'taken') or o.id = any (ids)
                            or o.id = any (restored) and o.id < j.id and o.state = 'cancelled'
                                and o.broken_by is not null))) end) x;
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
    where d.job_id = any (retried || restored) and d.depends_on in (select unnest(retried || restored)) and d.resolved;
    perform reactor.recompute_dependencies(retried || restored);
    perform reactor.resolve_ended(retried || restored);
    return query select j.id, j.state from reactor.jobs j where j.id = any (retried || restored) order by j.id;
end
$$;
comment on function reactor.retry is
    'Starts a new run of finished jobs; returns every job that will run again, restored dependants included.';
