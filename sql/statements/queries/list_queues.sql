-- Queues that have a row or an unfinished job: what runs in each, what is due, what is scheduled. One branch per index,
-- so that finished jobs are never read. The age of the oldest job is read by its id, without reading the others.
with counted as (
    select j.queue, 0 as running, count(*) as due, 0 as scheduled, 0 as waiting, min(j.id) as oldest
    from reactor.jobs j
    where j.phase = 'ready' and j.lane is null group by j.queue
    union all
    select j.queue, 0, count(*), 0, 0, min(j.id)
    from reactor.jobs j
    where j.phase = 'ready' and j.lane is not null group by j.queue
    union all
    select j.queue, 0, count(*), 0, 0, min(j.id)
    from reactor.jobs j
    where j.phase = 'parked' and j.scope is not null group by j.queue
    union all
    select j.queue, 0, count(*) filter (where j.run_after <= n.now), count(*) filter (where j.run_after > n.now), 0,
        min(j.id) filter (where j.run_after <= n.now)
    from reactor.jobs j cross join (select clock_timestamp() as now) n
    where j.phase = 'scheduled' group by j.queue
    union all
    select j.queue, 0, 0, 0, count(*), null from reactor.jobs j
    where j.phase = 'waiting' and j.job_type is not null group by j.queue
    union all
    select j.queue, count(*), 0, 0, 0, null from reactor.held_jobs j group by j.queue
    union all
    select q.name, 0, 0, 0, 0, null from reactor.queues q
), summed as (
    select c.queue, sum(c.running)::int as running, sum(c.due)::int as due, sum(c.scheduled)::int as scheduled,
        sum(c.waiting)::int as waiting, min(c.oldest) as oldest
    from counted c group by c.queue
)
select s.draining, c.queue, coalesce(q.paused, false) as paused, q.max_running, c.running, c.due,
    c.scheduled, c.waiting, extract(epoch from clock_timestamp() - j.created_at)::float8 as oldest_due_seconds
from reactor.settings s
left join summed c on true
left join reactor.queues q on q.name = c.queue
left join reactor.jobs j on j.id = c.oldest
order by c.queue
