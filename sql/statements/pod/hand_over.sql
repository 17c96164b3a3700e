-- Hands the attempts $2 of the jobs $1, whose process died, over to the worker $3 as new attempts; no other worker can
-- claim them in between. $4: what happened. $5: they are charged an attempt, and only jobs with attempts left are
-- handed over. Nor are those that must not start again.
with given as materialized (
    select g.id, g.attempt_id, clock_timestamp() as now from unnest($1::bigint[], $2::uuid[]) as g (id, attempt_id)
), moved as (
    update reactor.jobs j set
        attempt_id = gen_random_uuid(), worker_id = w.id,
        attempts = j.attempts + case when $5::boolean then 1 else 0 end,
        locked_at = g.now, requeued_at = g.now, ready_at = null, error = $4::text, changed_xid = txid_current()
    from given g cross join reactor.workers w
    where j.id = g.id and j.attempt_id = g.attempt_id and j.state = 'running'
        and w.id = $3::uuid and w.ended_at is null and w.lease_until > clock_timestamp()
        and (not $5::boolean or j.attempts < j.quota) and not j.started_once
    returning j.id, j.attempts - case when $5::boolean then 1 else 0 end as number, j.locked_by, g.attempt_id
), recorded as (
    insert into reactor.claims (worker_id, job_ids)
    select $3::uuid, array_agg(m.id) from moved m having count(*) > 0
), history as (
    -- The times are those of the row as it was before this statement.
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error, waited_seconds,
        queued_seconds)
    select m.id, m.attempt_id, m.number, m.locked_by, j.locked_at, 'crashed', $4::text, reactor.waited(j),
        reactor.queued(j)
    from moved m join reactor.jobs j on j.id = m.id
)
select id from moved
