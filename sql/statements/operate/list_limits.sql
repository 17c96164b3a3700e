-- All limits, with the number of running jobs that each counts.
select l.queue, l.job_type, l.lane, l.max_running, l.rate, extract(epoch from l.period)::float8 as period_seconds,
    l.burst, l.declared is not null as is_declared,
    (select count(*)::int from reactor.places p
        where l.queue in ('', p.queue) and l.job_type in ('', p.job_type)
            and (l.lane = '' or l.lane = p.lane or l.lane = '*' and p.lane is not null)) as running
from reactor.limits l
order by l.queue, l.job_type, l.lane
