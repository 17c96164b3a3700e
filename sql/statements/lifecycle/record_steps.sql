-- Writes the states of a batch of steps: jobs $1, attempts $2, names $3, states $4, results $5, errors $6. $7: the
-- milliseconds to wait for a lock (NULL: the server's setting). An attempt that is not returned was stale, and nothing
-- was written for it. FOR SHARE for the reason that plan_steps.sql gives, by id; the fence is a join clause for the
-- reason that reactor.settle gives.
with lock_timeout as materialized (
    select set_config('lock_timeout', coalesce($7::int::text, current_setting('lock_timeout')), true)
), reported as materialized (
    select *, 'running' as fence
    from unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[])
        as s (id, attempt_id, name, state, result, error)
), held as materialized (
    select j.id, j.attempt_id
    from (select distinct s.id, s.attempt_id, s.fence from reported s) a
    cross join lock_timeout
    join reactor.jobs j on j.id = a.id and j.attempt_id = a.attempt_id and j.state = a.fence
    order by j.id for share of j
), recorded as (
    update reactor.steps t set
        state = s.state, result = s.result, error = s.error,
        started_at = case when s.state = 'running' then clock_timestamp() else t.started_at end,
        finished_at = case when s.state in ('completed', 'failed', 'skipped') then clock_timestamp() end,
        changed_xid = txid_current()
    from reported s join held h on h.id = s.id and h.attempt_id = s.attempt_id
    where t.job_id = s.id and t.name = s.name
)
select attempt_id from held
