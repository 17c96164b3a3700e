-- Takes the running job $1 from a worker that is dead, with a fresh quota, to be run at once. No row: it is not running, or
-- its worker lives.
with stale as materialized (
    select j.id, j.attempt_id, j.attempts, 'running' as fence
    from reactor.jobs j
    where j.id = $1::bigint and j.state = 'running' and not exists (
        select from reactor.workers w
        where w.id = j.worker_id and w.ended_at is null and w.lease_until > clock_timestamp())
    for no key update
), recovered as (
    update reactor.jobs j set
        state = 'pending', attempts = 0, attempt_id = null, worker_id = null, run_after = null,
        changed = pg_current_xact_id()
    from stale s
    where j.id = s.id and j.attempt_id = s.attempt_id and j.state = s.fence
    returning j.id, j.locked_by, j.locked_at, s.attempt_id, s.attempts
), kept as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select r.id, r.attempt_id, r.attempts, r.locked_by, r.locked_at, 'lease_lost', 'Recovered by an operator.'
    from recovered r
)
select id from recovered
