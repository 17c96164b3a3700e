-- Writes how attempts ended, all outcomes in one statement; what comes back was written, what does not was stale.
-- Outcomes: completed, partial, failed; error (again while attempts are left, else failed); snoozed (costs no attempt).
-- The fence is a join clause on purpose: with `state = 'running'` as a constant the planner may walk another index for each
-- row once statistics say that nothing is running. Ids arrive sorted: that is the lock order. $9: how many milliseconds to wait for a lock
-- (NULL: as is set); set here, and not for the session, which a pooler may share with others.
with ended as materialized (
    select *, 'running' as fence,
        (select set_config('lock_timeout', coalesce($9::int::text, current_setting('lock_timeout')), true)) as patience
    from unnest($1::bigint[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::text[], $7::float8[],
        $8::int[]) as e (id, attempt_id, outcome, result, error, message, delay_seconds, children)
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
        children = coalesce(e.children, j.children),
        changed = pg_current_xact_id()
    from ended e
    where j.id = e.id and j.attempt_id = e.attempt_id and j.state = e.fence
    returning j.id, j.state, j.attempts, j.locked_by, j.locked_at, e.attempt_id, e.outcome, e.error
), kept as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select s.id, s.attempt_id, s.attempts + case when s.outcome = 'snoozed' then 1 else 0 end, s.locked_by, s.locked_at, s.outcome, s.error
    from settled s where s.state = 'pending'
)
select id, state from settled
