-- Cancels jobs that have not finished, for the reason $2. A running one loses its fence at once, so that its attempt can
-- write nothing more, and its worker is told; worker_id stays, and with it the scope, until the handler has stopped.
with target as materialized (
    select j.id, j.state, j.attempt_id, j.attempts, j.locked_by, j.locked_at, j.worker_id
    from reactor.jobs j
    where j.id = any ($1::bigint[]) and j.state in ('waiting', 'pending', 'running')
    order by j.id for no key update
), cancelled as (
    update reactor.jobs j set
        state = 'cancelled', attempt_id = null, run_after = null, parked = false, error = $2::text,
        finished_at = clock_timestamp(), changed = pg_current_xact_id()
    from target t where j.id = t.id
    returning j.id
), kept as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select t.id, t.attempt_id, t.attempts, t.locked_by, t.locked_at, 'preempted', $2::text
    from target t where t.state = 'running'
)
select
    t.id,
    t.state as was,
    case when t.state = 'running' then pg_notify('reactor_cancel', json_build_object(
        'worker_id', t.worker_id, 'job_id', t.id, 'attempt_id', t.attempt_id)::text) end is not null as told
from target t join cancelled c on c.id = t.id
