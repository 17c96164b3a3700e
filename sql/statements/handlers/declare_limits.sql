-- Writes the limits that code declares ($1, an array of objects). Where an operator has set other values than the code
-- declared before, they stay. Returns the limits that differ from what the code declares now.
with given as (
    select coalesce(d.queue, '') as queue, d.job_type, d.lane, d.max_running, d.rate,
        make_interval(secs => d.period_seconds) as period, d.burst,
        jsonb_build_object('max_running', d.max_running, 'rate', d.rate,
            'period', make_interval(secs => d.period_seconds), 'burst', d.burst) as declared
    from jsonb_to_recordset($1::jsonb) d (queue text, job_type text, lane text, max_running int, rate int,
        period_seconds float8, burst int)
), written as (
    insert into reactor.limits as l (queue, job_type, lane, max_running, rate, period, burst, declared)
    select g.queue, g.job_type, g.lane, g.max_running, g.rate, g.period, g.burst, g.declared from given g
    order by g.queue, g.job_type, g.lane
    on conflict (queue, job_type, lane) do update set declared = excluded.declared,
        max_running = case when l.declared = jsonb_build_object('max_running', l.max_running, 'rate', l.rate,
            'period', l.period, 'burst', l.burst) then excluded.max_running else l.max_running end,
        rate = case when l.declared = jsonb_build_object('max_running', l.max_running, 'rate', l.rate,
            'period', l.period, 'burst', l.burst) then excluded.rate else l.rate end,
        period = case when l.declared = jsonb_build_object('max_running', l.max_running, 'rate', l.rate,
            'period', l.period, 'burst', l.burst) then excluded.period else l.period end,
        burst = case when l.declared = jsonb_build_object('max_running', l.max_running, 'rate', l.rate,
            'period', l.period, 'burst', l.burst) then excluded.burst else l.burst end
    where l.declared is distinct from excluded.declared
)
select l.queue, l.job_type, l.lane from given g
join reactor.limits l on l.queue = g.queue and l.job_type = g.job_type and l.lane = g.lane
where l.declared is distinct from jsonb_build_object('max_running', l.max_running, 'rate', l.rate,
    'period', l.period, 'burst', l.burst)
