-- Puts back what dead workers hold, at most $1 jobs: again while attempts are left, else failed. The update repeats the
-- whole condition under the row's lock, for a worker may have settled in between. Jobs taken from a worker before it died
-- (cancelled ones) only give their scope free.
with dead as materialized (
    select j.id, j.attempt_id, j.worker_id, j.state as fence
    from reactor.jobs j
    where j.worker_id is not null and not exists (
        select from reactor.workers w
        where w.id = j.worker_id and w.ended_at is null and w.lease_until > clock_timestamp())
    order by j.id limit $1::int
    for no key update skip locked
), swept as (
    update reactor.jobs j set
        state = case when d.fence <> 'running' then j.state when j.attempts < j.quota then 'pending' else 'failed' end,
        attempt_id = case when d.fence = 'running' and j.attempts < j.quota then null else j.attempt_id end,
        finished_at = case when d.fence <> 'running' then j.finished_at when j.attempts < j.quota then null
            else clock_timestamp() end,
        error = case when d.fence <> 'running' then j.error
            else format('The pod %s died or fell silent during attempt %s.', j.locked_by, j.attempts) end,
        worker_id = null,
        changed = pg_current_xact_id()
    from dead d
    where j.id = d.id and j.worker_id = d.worker_id and j.state = d.fence
        and j.attempt_id is not distinct from d.attempt_id
    returning j.id, j.state, j.attempts, j.locked_by, j.locked_at, j.error, d.attempt_id, d.fence
), kept as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select s.id, s.attempt_id, s.attempts, s.locked_by, s.locked_at, 'lease_lost', s.error
    from swept s where s.fence = 'running' and s.state = 'pending'
), buried as (
    update reactor.workers w set ended_at = clock_timestamp()
    where w.ended_at is null and w.lease_until <= clock_timestamp()
)
select id, state from swept
