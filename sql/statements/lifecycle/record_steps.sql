-- Writes the states of a batch of steps: jobs $1, attempts $2, names $3, states $4, results $5, errors $6, and how many
-- seconds ago they started, $7; and the progress of attempts $8: fractions $9 and messages $10 (NULL: unchanged). $11:
-- the milliseconds to wait for a lock (NULL: the server's setting). An attempt that is not returned was stale, and
-- nothing was written for it. The rows are locked for the reason that plan_steps.sql gives, by id; the fence is a join
-- clause for the reason that reactor.settle gives.
with lock_timeout as materialized (
    select set_config('lock_timeout', coalesce($11::int::text, current_setting('lock_timeout')), true)
), reported as materialized (
    select *, 'running' as fence
    from unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::float8[])
        as s (id, attempt_id, name, state, result, error, started_ago)
), held as materialized (
    select j.id, j.attempt_id
    from (select distinct s.id, s.attempt_id, s.fence from reported s) a
    cross join lock_timeout
    join reactor.jobs j on j.id = a.id and j.attempt_id = a.attempt_id and j.state = a.fence
    order by j.id for no key update of j
), recorded as (
    update reactor.steps t set
        state = s.state, result = s.result, error = s.error,
        started_at = coalesce(t.started_at, clock_timestamp() - make_interval(secs => s.started_ago)),
        finished_at = case when s.state in ('completed', 'failed', 'skipped') then clock_timestamp() end,
        changed_xid = txid_current()
    from reported s join held h on h.id = s.id and h.attempt_id = s.attempt_id
    where t.job_id = s.id and t.name = s.name
), progressed as (
    update reactor.jobs j set
        progress = coalesce(p.progress, j.progress), status_message = coalesce(p.message, j.status_message),
        changed_xid = txid_current()
    from unnest($8::uuid[], $9::real[], $10::text[]) as p (attempt_id, progress, message)
    join held h on h.attempt_id = p.attempt_id
    where j.id = h.id
)
select attempt_id from held
