-- Everything that may keep the job $1 from running, in one snapshot. Reads tables and calls what viewers may execute. A
-- worker is alive by the database's clock. While its process does not respond, the counts say so: it claims nothing. A
-- job is held while worker_id is set, also after a cancel.
with asked as materialized (
    select j.* from reactor.jobs j where j.id = $1::bigint
), live as materialized (
    select w.id, w.pod, w.capacity, coalesce(jsonb_typeof(w.counts -> 'silent_seconds') = 'number', false) as is_silent,
        a.job_type = any (w.job_types) as has_handler,
        w.queues is null or a.queue = any (w.queues) as has_queue
    from asked a cross join reactor.workers w
    where w.ended_at is null and w.lease_until > clock_timestamp()
), needed as materialized (
    select d.depends_on as id, d.needs, p.job_type, p.state
    from asked a
    join reactor.dependencies d on d.job_id = a.id and d.resolved is not true
    join reactor.jobs p on p.id = d.depends_on
    where a.state = 'waiting'
    order by d.depends_on
)
select
    j.id, j.state, j.job_type, j.queue, j.scope,
    j.parked, j.attempts, coalesce(j.max_attempts, j.quota, 3) as quota,
    j.max_attempts is not null as quota_is_own,
    case when j.run_after is not null
        then least(j.run_after, timestamptz '9999-12-31 23:59:59.999999+00') end as run_after,
    j.run_after > clock_timestamp() as is_early,
    case when isfinite(j.run_after)
        then extract(epoch from j.run_after - clock_timestamp())::float8 end as due_in_seconds,
    j.locked_by, j.locked_at, extract(epoch from clock_timestamp() - j.locked_at)::float8 as held_seconds,
    j.started_at, j.finished_at, j.error, j.status_message, j.broken_by, b.state as broken_by_state,
    j.worker_id is not null as is_held,
    coalesce(w.ended_at is null and w.lease_until > clock_timestamp(), false) as worker_is_alive,
    extract(epoch from w.lease_until - clock_timestamp())::float8 as lease_seconds,
    case when jsonb_typeof(w.counts -> 'silent_seconds') = 'number'
        then (w.counts ->> 'silent_seconds')::float8 + extract(epoch from clock_timestamp() - w.heartbeat_at)::float8
        end as silent_seconds,
    case when jsonb_typeof(w.counts -> 'silent_pid') = 'number' then (w.counts -> 'silent_pid')::int end as silent_pid,
    w.counts ->> 'silent_state' as silent_state,
    -- A large retry has suspended it.
    j.state = 'waiting' and j.waiting_on = 0 and exists (select from reactor.retries) as is_being_retried,
    (select count(*)::int from needed) as needed_count,
    array(select jsonb_build_object('id', n.id, 'job_type', n.job_type, 'state', n.state, 'needs', n.needs)::text
        from (select * from needed limit 10) n) as needed,
    h.id as holder_id, h.job_type as holder_type, h.state as holder_state, h.locked_by as holder_pod,
    extract(epoch from clock_timestamp() - h.locked_at)::float8 as holder_seconds,
    coalesce(hw.ended_at is null and hw.lease_until > clock_timestamp(), false) as holder_is_alive,
    -- Read only where it can exist: no worker holds the scope, and another job of it was unparked.
    case when j.parked and h.id is null then (
        select o.id from reactor.jobs o
        where o.scope = j.scope and o.phase = 'ready'
        order by o.priority, o.id limit 1) end as ahead_id,
    -- A running job of which no step runs: the step that runs next, after a run that failed.
    case when j.state = 'running' and (j.step_counts ->> 'running')::int = 0 then (
        select jsonb_build_object('name', t.name, 'run', t.attempts + 1, 'max_attempts', t.max_attempts,
            'in_seconds', greatest(0, date_part('epoch', t.run_after - clock_timestamp())),
            'error', left(t.error, 2000))
        from reactor.steps t where t.job_id = j.id and t.state = 'pending' and t.run_after is not null
        order by t.run_after limit 1) end as next_step,
    s.draining, coalesce(q.paused, false) as is_paused,
    -- Limits that allow no further job now.
    array(
        select jsonb_build_object('queue', nullif(f.queue, ''), 'job_type', nullif(f.job_type, ''),
            'lane', nullif(f.lane, ''), 'max_running', f.max_running,
            'running', p.n, 'rate', f.rate,
            'period_seconds', extract(epoch from f.every * f.rate),
            'opens_in_seconds', case when r.opens_at < 'infinity' and f.max_running <= p.n is not true
                then greatest(0, extract(epoch from r.opens_at - clock_timestamp())) end)::text
        from reactor.limits_of(j.queue, j.job_type, j.lane) f
        cross join lateral reactor.room(array[f.queue], array[f.job_type], array[f.lane]) r
        cross join lateral (
            select count(*)::int as n from reactor.held_jobs p
            where f.max_running is not null
                and f.queue in ('', p.queue) and f.job_type in ('', p.job_type) and f.lane in ('', p.lane)) p
        where j.state = 'pending' and (r.free <= 0 or f.max_running <= p.n)) as limits,
    j.lane,
    -- Jobs before this one in its line, counted to 10,000.
    case when j.phase = 'ready' and j.lane is not null then (
        select count(*)::int from (
            select from reactor.jobs o
            where o.phase = 'ready' and o.lane is not null and o.queue = j.queue and o.job_type = j.job_type
                and o.lane = j.lane and (o.priority < j.priority or o.priority = j.priority and o.id < j.id)
            limit 10000) o)
        when j.phase = 'ready' then (
        select count(*)::int from (
            select from reactor.jobs o
            where o.phase = 'ready' and o.lane is null and o.queue = j.queue and o.job_type = j.job_type
                and (o.priority, o.id) < (j.priority, j.id)
            limit 10000) o) end as ahead,
    l.pods, l.with_handler, l.with_queue, l.with_both, l.capacity, l.held, l.silent,
    extract(epoch from clock_timestamp() - t.last_seen_at)::float8 as type_unseen_seconds,
    -- Read only where the type may be misspelt.
    case when l.with_handler = 0 and t.name is null and j.state in ('waiting', 'pending')
        then array(select k.name from reactor.job_types k limit 500) end as known_types
from asked j
cross join reactor.settings s
left join reactor.jobs b on b.id = j.broken_by
left join reactor.workers w on w.id = j.worker_id
left join reactor.jobs h on h.scope = j.scope and h.holds_scope and j.state in ('waiting', 'pending')
left join reactor.workers hw on hw.id = h.worker_id
left join reactor.queues q on q.name = j.queue
left join reactor.job_types t on t.name = j.job_type
cross join lateral (
    select count(distinct l.pod)::int as pods,
        count(distinct l.pod) filter (where l.has_handler)::int as with_handler,
        count(distinct l.pod) filter (where l.has_queue)::int as with_queue,
        count(distinct l.pod) filter (where l.has_handler and l.has_queue)::int as with_both,
        coalesce(sum(l.capacity) filter (where l.has_handler and l.has_queue and not l.is_silent), 0)::int as capacity,
        coalesce(sum((select count(*) from reactor.held_jobs r where r.worker_id = l.id))
            filter (where l.has_handler and l.has_queue and not l.is_silent), 0)::int as held,
        count(*) filter (where l.has_handler and l.has_queue and l.is_silent)::int as silent
    from live l
) l
