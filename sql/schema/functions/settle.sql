-- Writes how attempts ended, all outcomes in one statement; what comes back was written, what does not was stale.
-- Outcomes: completed, partial, failed; error (again while attempts are left, else failed); snoozed (costs no attempt).
-- The fence is a join clause on purpose: with `state = 'running'` as a constant the planner may walk another index for each
-- row once statistics say that nothing is running. Ids arrive sorted: that is the lock order.
create function reactor.settle(
    ids bigint[], attempt_ids uuid[], outcomes text[], results jsonb[], errors text[], messages text[],
    delays_seconds float8[], children int[], lock_wait_ms int)
    returns table (id bigint, state text)
-- A function for the sake of its settings: a statement that a worker prepared while the table was small kept a plan that
-- reads all of it (100,000 jobs come at once: 40 ms for 200 of them instead of 6), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    -- Here, and not for the session: a pooler may share that with others.
    if lock_wait_ms is not null then
        perform set_config('lock_timeout', lock_wait_ms::text, true);
    end if;
    return query
    with ended as materialized (
        select *, 'running' as fence
        from unnest(ids, attempt_ids, outcomes, results, errors, messages, delays_seconds, settle.children)
            as e (id, attempt_id, outcome, result, error, message, delay_seconds, children)
    ), settled as (
        update reactor.jobs j set
            state = case e.outcome
                when 'snoozed' then 'pending'
                when 'error' then case when j.attempts < j.quota then 'pending' else 'failed' end
                else e.outcome end,
            attempts = j.attempts - case when e.outcome = 'snoozed' then 1 else 0 end,
            attempt_id = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota then null
                else j.attempt_id end,
            run_after = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota
                then clock_timestamp() + nullif(make_interval(secs => greatest(e.delay_seconds, 0)), interval '0') end,
            finished_at = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota then null
                else clock_timestamp() end,
            worker_id = null,
            result = e.result,
            error = e.error,
            status_message = coalesce(e.message, j.status_message),
            -- Who has told how far it is has told the rest by being done.
            progress = case when e.outcome = 'completed' and j.progress is not null then 1 else j.progress end,
            children = j.children + coalesce(e.children, 0),
            changed = pg_current_xact_id()
        from ended e
        where j.id = e.id and j.attempt_id = e.attempt_id and j.state = e.fence
        returning j.id, j.state, j.attempts, j.locked_by, j.locked_at, e.attempt_id, e.outcome, e.error
    ), kept as (
        insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
        select s.id, s.attempt_id, s.attempts + case when s.outcome = 'snoozed' then 1 else 0 end, s.locked_by, s.locked_at, s.outcome, s.error
        from settled s where s.state = 'pending'
    )
    select s.id, s.state::text from settled s;
end
$$;
comment on function reactor.settle is
    'Writes how attempts ended; returns the jobs that were still theirs, with their new states.';
