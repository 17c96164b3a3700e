-- Types of ready jobs that no live worker would claim. A loose index scan: one step through the index for each queue
-- and type, $1 of them at most, however many jobs there are.
with recursive plain (queue, job_type, n) as (
    (select j.queue, j.job_type, 1 from reactor.jobs j
        where j.phase = 'ready' and j.lane is null
        order by j.queue, j.job_type limit 1)
    union all
    select next.queue, next.job_type, k.n + 1 from plain k cross join lateral (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'ready' and j.lane is null and (j.queue, j.job_type) > (k.queue, k.job_type)
        order by j.queue, j.job_type limit 1) next
    where k.n < $1::int
), lined (queue, job_type, n) as (
    (select j.queue, j.job_type, 1 from reactor.jobs j
        where j.phase = 'ready' and j.lane is not null
        order by j.queue, j.job_type limit 1)
    union all
    select next.queue, next.job_type, k.n + 1 from lined k cross join lateral (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'ready' and j.lane is not null and (j.queue, j.job_type) > (k.queue, k.job_type)
        order by j.queue, j.job_type limit 1) next
    where k.n < $1::int
), kind as (
    select p.queue, p.job_type from plain p union select l.queue, l.job_type from lined l limit $1::int
)
select kind.queue, kind.job_type from kind
where not exists (
    select from reactor.workers w
    where w.ended_at is null and w.lease_until > clock_timestamp()
        and kind.job_type = any (w.job_types) and (w.queues is null or kind.queue = any (w.queues)))
