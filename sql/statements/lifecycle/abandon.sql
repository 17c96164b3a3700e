-- Ends the attempt $2 of the job $1, which has timed out ($3) and whose handler can't be stopped. The attempt loses its
-- fence, and the job runs again after $4 seconds (NULL: not again) while attempts are left. worker_id stays, and with
-- it the scope, until the handler has stopped or its process is dead. No row: the attempt was stale.
with abandoned as (
    update reactor.jobs j set
        state = case when j.attempts < j.quota and $4::float8 is not null then 'pending' else 'failed' end,
        attempt_id = case when j.attempts < j.quota and $4::float8 is not null then null else j.attempt_id end,
        run_after = case when j.attempts < j.quota and $4::float8 is not null
            then clock_timestamp() + make_interval(secs => $4::float8) end,
        finished_at = case when j.attempts < j.quota and $4::float8 is not null then null else clock_timestamp() end,
        error = $3::text, changed = pg_current_xact_id()
    where j.id = $1::bigint and j.attempt_id = $2::uuid and j.state = 'running'
    returning j.id, j.state, j.attempts, j.locked_by, j.locked_at
), history as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select a.id, $2::uuid, a.attempts, a.locked_by, a.locked_at, 'error', $3::text
    from abandoned a where a.state = 'pending'
)
select id, state from abandoned
