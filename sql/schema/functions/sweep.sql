-- Takes back the jobs of dead workers.

-- Ends workers whose lease is over. A heartbeat that has not committed yet holds the row's lock, and is skipped.
create or replace function reactor.expire_workers() returns void
language sql set search_path = pg_catalog, pg_temp as $$
    update reactor.workers w set ended_at = clock_timestamp()
    from (
        select d.id from reactor.workers d where d.ended_at is null and d.lease_until <= clock_timestamp()
        order by d.id for no key update skip locked) dead
    where w.id = dead.id
$$;
comment on function reactor.expire_workers is 'Ends the workers whose lease is over.';

-- Takes back at most `batch` jobs that ended workers hold: pending while attempts are left, else failed. Jobs that were
-- cancelled before only release their scope. With `single`: only that job, with a fresh quota.
create or replace function reactor.sweep(batch int, single bigint default null) returns table (id bigint, state text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    perform reactor.expire_workers();
    -- A new statement, which sees the workers that just expired.
    return query
        with dead as materialized (
            select j.id, j.attempt_id, j.worker_id, j.state as fence, j.attempts,
                single is not null or j.attempts < j.quota as may_retry
            from reactor.jobs j
            where j.worker_id is not null and (single is null or j.id = single and j.state = 'running')
                and not exists (select from reactor.workers w where w.id = j.worker_id and w.ended_at is null)
            order by j.id limit batch
            for no key update skip locked
        ), swept as (
            update reactor.jobs j set
                state = case when d.fence <> 'running' then j.state when d.may_retry then 'pending' else 'failed' end,
                attempt_id = case when d.fence = 'running' and d.may_retry then null else j.attempt_id end,
                finished_at = case when d.fence = 'running' and not d.may_retry then clock_timestamp()
                    else j.finished_at end,
                attempts = case when single is not null then 0 else j.attempts end,
                error = case when d.fence <> 'running' then j.error
                    else format('The pod %s died or sent no heartbeat during attempt %s.', j.locked_by, j.attempts) end,
                worker_id = null,
                changed = pg_current_xact_id()
            from dead d
            where j.id = d.id and j.worker_id = d.worker_id and j.state = d.fence
                and j.attempt_id is not distinct from d.attempt_id
            returning j.id, j.state, d.attempts, j.locked_by, j.locked_at, j.error, d.attempt_id, d.fence
        ), history as (
            insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
            select s.id, s.attempt_id, s.attempts, s.locked_by, s.locked_at, 'lease_lost', s.error
            from swept s where s.fence = 'running' and s.state = 'pending'
        )
        select s.id, s.state::text from swept s;
end
$$;
comment on function reactor.sweep is 'Takes back the jobs of dead workers; returns them with their new states.';
