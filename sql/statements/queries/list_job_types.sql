-- The job types that are known, or only $1 (NULL: all), with the live pods that have a handler for each and the queues
-- that these work on (NULL: all queues).
select t.name, t.description, t.queue, t.max_attempts, t.timeout_seconds, t.delivery, t.payload_schema, t.is_checked,
    t.published_at, greatest(t.last_seen_at, l.heartbeat_at) as last_seen_at, l.pods, l.queues
from reactor.job_types t
cross join lateral (
    select array(select distinct w.pod from reactor.workers w
            where w.ended_at is null and w.lease_until > clock_timestamp() and t.name = any (w.job_types)
            order by w.pod limit 1000) as pods,
        max(w.heartbeat_at) as heartbeat_at,
        case when not bool_or(w.queues is null) then array(
            select distinct q.queue from reactor.live_workers v cross join unnest(v.queues) q (queue)
            where t.name = any (v.job_types) order by q.queue) end as queues
    from reactor.workers w
    where w.ended_at is null and w.lease_until > clock_timestamp() and t.name = any (w.job_types)
) l
where $1::text is null or t.name = $1
order by t.name
limit 1000
