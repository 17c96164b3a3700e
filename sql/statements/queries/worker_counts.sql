-- The counters of workers that are alive, and of those that ended in the last $1 seconds, or their last numbers would
-- never be read. At most 1,000, the newest.
select w.id::text as worker, w.pod, w.capacity, w.counts,
    w.ended_at is null and w.lease_until > clock_timestamp() as is_alive,
    extract(epoch from clock_timestamp() - w.heartbeat_at)::float8 as heartbeat_age_seconds
from reactor.workers w
where coalesce(w.ended_at, w.lease_until) > clock_timestamp() - make_interval(secs => $1::float8)
order by w.started_at desc limit 1000
