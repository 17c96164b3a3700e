-- Writes the states of a batch of steps: jobs $1, attempts $2, names $3, states $4, results $5, errors $6, how often
-- they have run $7 (NULL: unchanged), after how many seconds they run again $8, how long the run that ended took $9,
-- and how many seconds ago it started $10; and the progress of attempts $11: fractions $12, messages $13 and
-- step_counts $14 (NULL: unchanged). $15: the milliseconds to wait for a lock (NULL: the server's setting). An attempt
-- that is not returned was stale, and nothing was written for it. The rows are locked for the reason that
-- plan_steps.sql gives, by id; the fence is a join clause for the reason that reactor.settle gives.
with lock_timeout as materialized (
    select set_config('lock_timeout', coalesce($15::int::text, current_setting('lock_timeout')), true)
), reported as materialized (
    select *, 'running' as fence
    from unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::int[], $8::float8[],
        $9::float8[], $10::float8[])
        as s (id, attempt_id, name, state, result, error, attempts, delay_seconds, ran_seconds, started_ago)
), held as materialized (
    select j.id, j.attempt_id
    from (select distinct s.id, s.attempt_id, s.fence from reported s) a
    cross join lock_timeout
    join reactor.jobs j on j.id = a.id and j.attempt_id = a.attempt_id and j.state = a.fence
    order by j.id for no key update of j
), recorded as (
    update reactor.steps t set
        state = s.state, result = s.result, error = s.error, attempts = coalesce(s.attempts, t.attempts),
        -- The start of a run that was not written while it ran, or that of the run that is.
        started_at = case when t.state = 'running' and t.started_at is not null then t.started_at
            else coalesce(clock_timestamp() - make_interval(secs => s.started_ago), t.started_at) end,
        finished_at = case when s.state in ('completed', 'failed', 'skipped') then clock_timestamp() end,
        run_after = clock_timestamp() + make_interval(secs => s.delay_seconds),
        ran_seconds = case when s.ran_seconds is null then t.ran_seconds
            else coalesce(t.ran_seconds, 0) + s.ran_seconds end,
        changed_xid = txid_current()
    from reported s join held h on h.id = s.id and h.attempt_id = s.attempt_id
    where t.job_id = s.id and t.name = s.name
), progressed as (
    update reactor.jobs j set
        progress = coalesce(p.progress, j.progress), status_message = coalesce(p.message, j.status_message),
        step_counts = coalesce(p.counts, j.step_counts), changed_xid = txid_current()
    from unnest($11::uuid[], $12::real[], $13::text[], $14::jsonb[]) as p (attempt_id, progress, message, counts)
    join held h on h.attempt_id = p.attempt_id
    where j.id = h.id
)
select attempt_id from held
