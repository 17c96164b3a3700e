-- Jobs by type and state: those that ended in the last $1 seconds, and all unfinished ones. The former are found by the
-- BRIN index on times, the latter by the partial indexes of unfinished jobs: older history is not read. A job counts as
-- retried if an attempt at it failed, crashed or lost its lease, or if an operator retried it. (Not attempts > 1: an
-- attempt that died with its process is refunded.)
with recent as not materialized (
    select j.id, j.job_type, j.state,
        extract(epoch from j.finished_at - j.started_at)::float8 as seconds
    from reactor.jobs j
    where j.finished_at >= (select clock_timestamp()) - make_interval(secs => $1::float8) and j.job_type is not null
), unfinished as (
    select j.id, j.job_type, j.state from reactor.jobs j
    where j.phase = 'ready' and j.lane is null
    union all
    select j.id, j.job_type, j.state from reactor.jobs j
    where j.phase = 'ready' and j.lane is not null
    union all
    select j.id, j.job_type, j.state from reactor.jobs j
    where j.phase = 'scheduled'
    union all
    select j.id, j.job_type, j.state from reactor.jobs j
    where j.phase = 'parked' and j.scope is not null
    union all
    select j.id, j.job_type, j.state from reactor.jobs j where j.phase = 'waiting'
        and j.job_type is not null
    union all
    select j.id, j.job_type, j.state from reactor.held_jobs j where j.state = 'running'
), retried as materialized (
    select distinct a.job_id from reactor.attempts a where a.outcome in ('error', 'crashed', 'lease_lost', 'retried')
)
select x.job_type, x.state, count(*) as count, avg(x.seconds) as average_seconds,
    (percentile_cont(0.5) within group (order by x.seconds))::float8 as p50_seconds,
    (percentile_cont(0.95) within group (order by x.seconds))::float8 as p95_seconds,
    count(r.job_id) as retried
from (
    select * from recent
    union all
    select u.id, u.job_type, u.state, null from unfinished u
) x
left join retried r on r.job_id = x.id
group by x.job_type, x.state
order by x.job_type, x.state
