-- What operators do and what needs more than one statement.

-- A new run for finished jobs, with a fresh quota. The old one stays in reactor.attempts, and the dependants that were
-- cancelled because of it wait again.
create function reactor.retry(ids bigint[]) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    again bigint[];
    back bigint[];
begin
    select array_agg(x.id) into again from (
        select j.id from reactor.jobs j
        where j.id = any (ids) and j.state in ('completed', 'partial', 'failed', 'cancelled')
        order by j.id for no key update) x;
    if again is null then
        return;
    end if;
    with recursive broken (id) as (
        select j.id from reactor.jobs j where j.broken_by = any (again) and j.state = 'cancelled'
        union
        select j.id from broken join reactor.jobs j on j.broken_by = broken.id and j.state = 'cancelled'
    )
    select array_agg(x.id) into back from (
        select j.id from reactor.jobs j
        where j.id in (select broken.id from broken) and j.id <> all (again) and j.state = 'cancelled'
        order by j.id for no key update) x;

    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error)
    select j.id, j.attempt_id, j.attempts, j.locked_by, j.locked_at, j.finished_at, 'retried', j.error
    from reactor.jobs j where j.id = any (again) and j.attempt_id is not null
    on conflict do nothing;

    update reactor.jobs j set
        attempts = 0, attempt_id = null, quota = null, run_after = null, broken_by = null, error = null, result = null,
        progress = null, status_message = null, started_at = null, finished_at = null, parked = false,
        changed = pg_current_xact_id(),
        -- A cancelled job gave its key free; somebody may have it now.
        idempotency_key = case when j.state <> 'cancelled' or not exists (
            select from reactor.jobs o
            where o.job_type = j.job_type and o.idempotency_key = j.idempotency_key and o.state <> 'cancelled')
            then j.idempotency_key end,
        state = 'pending'
    where j.id = any (again || back);
    perform reactor.reconsider(again || back);
    return query select j.id, j.state::text from reactor.jobs j where j.id = any (again || back) order by j.id;
end
$$;
comment on function reactor.retry is 'Starts finished jobs anew; returns every job that is to run again.';

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
        perform reactor.reconsider(ids);
        return query select unnest(ids);
    end if;
end
$$;
comment on function reactor.reconcile is 'Puts right jobs that wait without reason; each one is a bug found.';
