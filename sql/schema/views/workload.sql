-- The unfinished work by queue and job type, for autoscalers and metrics. It reads no finished jobs: each part has its
-- own partial index. Counts stop at 100,000 for each queue and type that is due, and for all scheduled, parked and
-- waiting jobs together, so that the view is fast when the backlog is large.
create or replace view reactor.workload as
with recursive kind (queue, job_type) as (
    -- A loose index scan: one step through the index for each queue and type.
    (select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'ready' and j.lane is null
        order by j.queue, j.job_type limit 1)
    union all
    select next.queue, next.job_type from kind cross join lateral (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'ready' and j.lane is null
            and (j.queue, j.job_type) > (kind.queue, kind.job_type)
        order by j.queue, j.job_type limit 1) next
), line (queue, job_type, lane) as (
    (select j.queue, j.job_type, j.lane from reactor.jobs j
        where j.phase = 'ready' and j.lane is not null
        order by j.queue, j.job_type, j.lane limit 1)
    union all
    select next.queue, next.job_type, next.lane from line cross join lateral (
        select j.queue, j.job_type, j.lane from reactor.jobs j
        where j.phase = 'ready' and j.lane is not null
            and (j.queue, j.job_type, j.lane) > (line.queue, line.job_type, line.lane)
        order by j.queue, j.job_type, j.lane limit 1) next
), part as (
    -- open: as far as limits on lanes allow
    select k.queue, k.job_type, r.n as due, r.n as open,
        (select greatest(o.created_at, o.locked_at) from reactor.jobs o where o.id = r.oldest) as oldest_at,
        0::bigint as running, 0::bigint as scheduled,
        null::timestamptz as next_at, 0::bigint as parked, 0::bigint as waiting, 0::bigint as due_schedules
    from kind k
    cross join lateral (
        select count(*) as n, min(x.id) as oldest from (
            select j.id from reactor.jobs j
            where j.phase = 'ready' and j.lane is null and j.queue = k.queue
                and j.job_type = k.job_type
            limit 100000) x) r
    union all
    select k.queue, k.job_type, r.n, least(r.n, m.free),
        (select greatest(o.created_at, o.locked_at) from reactor.jobs o where o.id = r.oldest),
        0, 0, null, 0, 0, 0
    from line k
    cross join lateral (
        select count(*) as n, min(x.id) as oldest from (
            select j.id from reactor.jobs j
            where j.phase = 'ready' and j.lane is not null and j.queue = k.queue
                and j.job_type = k.job_type and j.lane = k.lane
            limit 10000) x) r
    cross join lateral (
        select min(greatest(0, least(
            l.max_running - (select count(*) from reactor.places p
                where p.lane = k.lane and l.queue in ('', p.queue) and l.job_type in ('', p.job_type)),
            floor(l.burst - greatest(0, extract(epoch from (
                select t.paid_until from reactor.rates t
                where t.queue = l.queue and t.job_type = l.job_type and t.lane = k.lane
                    and t.paced_at = l.paced_at) - clock_timestamp()))
                / extract(epoch from l.every))::bigint))) as free
        from reactor.limit_rules l
        where l.queue in ('', k.queue) and l.job_type in ('', k.job_type)
            and (l.lane = k.lane or l.lane = '*' and not exists (
                select from reactor.limits e
                where e.queue = l.queue and e.job_type = l.job_type and e.lane = k.lane))
            and (l.max_running is not null or l.rate is not null)) m
    union all
    -- Due, but not yet promoted: pods do that, and there may be none.
    select x.queue, x.job_type, count(*) filter (where x.is_due), count(*) filter (where x.is_due),
        min(x.run_after) filter (where x.is_due), 0,
        count(*) filter (where not x.is_due),
        min(x.run_after) filter (where not x.is_due and x.run_after < 'infinity'), 0, 0, 0
    from (
        select j.queue, j.job_type, j.run_after,
            j.run_after <= (select clock_timestamp()) as is_due
        from reactor.jobs j
        where j.phase = 'scheduled'
        order by j.run_after limit 100000) x
    group by x.queue, x.job_type
    union all
    select x.queue, x.job_type, 0, 0, null, 0, 0, null, count(*), 0, 0
    from (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'parked' and j.scope is not null limit 100000) x
    group by x.queue, x.job_type
    union all
    select x.queue, x.job_type, 0, 0, null, 0, 0, null, 0, count(*), 0
    from (
        select j.queue, j.job_type from reactor.jobs j
        where j.phase = 'waiting' and j.job_type is not null limit 100000) x
    group by x.queue, x.job_type
    union all
    -- Also cancelled jobs whose handlers have not stopped: they occupy slots.
    select j.queue, j.job_type, 0, 0, null, count(*), 0, null, 0, 0, 0
    from reactor.held_jobs j where j.job_type is not null
    group by 1, 2
    union all
    -- Pods run schedules too: without a pod their jobs are not inserted.
    select s.queue, s.job_type, 0, 0, null, 0, 0, null, 0, 0, count(*)
    from reactor.schedules s
    where s.enabled and (s.next_run_at <= (select clock_timestamp()) or (s.next_run_at is null and s.error is null))
    group by 1, 2
), load as (
    select p.queue, p.job_type, sum(p.due)::bigint as due, sum(p.open)::bigint as open, min(p.oldest_at) as oldest_at,
        sum(p.running)::bigint as running, sum(p.scheduled)::bigint as scheduled, min(p.next_at) as next_at,
        sum(p.parked)::bigint as parked, sum(p.waiting)::bigint as waiting,
        sum(p.due_schedules)::bigint as due_schedules
    from part p group by p.queue, p.job_type
), rule as materialized (
    -- Limits on whole queues and types.
    select r.queue, r.job_type, r.max_running,
        floor(r.burst - greatest(0, extract(epoch from t.paid_until - clock_timestamp()))
            / extract(epoch from r.every))::bigint as starts
    from reactor.limit_rules r
    left join reactor.rates t
        on t.queue = r.queue and t.job_type = r.job_type and t.lane = '' and t.paced_at = r.paced_at
    where r.lane = ''
), of_kind as (
    select l.*, least(q.max_running - sum(l.running) over (partition by l.queue), q.starts) as of_queue,
        least(t.max_running - sum(l.running) over (partition by l.job_type), t.starts) as of_type,
        case when g.draining or coalesce(p.paused, false) then 0
            else least(l.open, k.max_running - l.running, k.starts) end as open_here
    from load l
    cross join reactor.settings g
    left join reactor.queues p on p.name = l.queue
    left join rule k on k.queue = l.queue and k.job_type = l.job_type
    left join rule q on q.queue = l.queue and q.job_type = ''
    left join rule t on t.queue = '' and t.job_type = l.job_type
), alone as (
    -- What could start if there were no other queues and types.
    select k.*, greatest(0, least(k.open_here, k.of_queue, k.of_type)) as n from of_kind k
), of_queue as (
    -- The free places of a queue are assigned to its types in the order of their names, and those of a type to its
    -- queues. Where both have limits, the sum may be too small, but not 0 if a job can start.
    select k.*, case when k.of_queue is null then k.n
        else least(k.n, greatest(0, k.of_queue - coalesce(sum(k.n) over (
            partition by k.queue order by k.job_type rows between unbounded preceding and 1 preceding), 0))) end as m
    from alone k
)
select
    l.queue, l.job_type, l.due, l.running,
    (l.running + case when l.of_type is null then l.m
        else least(l.m, greatest(0, l.of_type - coalesce(sum(l.m) over (
            partition by l.job_type order by l.queue rows between unbounded preceding and 1 preceding), 0)))
        end)::bigint as wanted,
    l.due_schedules, l.scheduled, l.next_at, l.parked, l.waiting,
    extract(epoch from greatest(interval '0', clock_timestamp() - l.oldest_at))::float8 as oldest_due_seconds
from of_queue l;
comment on view reactor.workload is
    'Unfinished work by queue and job type. '
    'For an autoscaler: select coalesce(sum(wanted), 0)::int from reactor.workload.';
comment on column reactor.workload.due is
    'jobs that could be claimed now if their queue is not paused, draining is off and no limit is reached; '
    'counted to 100,000, and to 10,000 for each lane';
comment on column reactor.workload.running is 'jobs that occupy a slot of a worker process';
comment on column reactor.workload.wanted is
    'running jobs, and due jobs as far as they may run: '
    'none of a paused queue or during a drain, and no more than limits allow now';
comment on column reactor.workload.due_schedules is 'schedules of this type whose job a pod should insert now';
comment on column reactor.workload.scheduled is
    'jobs that are due later, by run_after or the backoff of a retry; the next 100,000';
comment on column reactor.workload.next_at is 'when the next scheduled job is due';
comment on column reactor.workload.parked is 'jobs behind another job of their scope: more pods do not help';
comment on column reactor.workload.waiting is 'jobs that wait for jobs they depend on';
comment on column reactor.workload.oldest_due_seconds is
    'the time since the oldest due job was created or last claimed '
    '(a scheduled job: since it was due, until a pod promotes it)';
