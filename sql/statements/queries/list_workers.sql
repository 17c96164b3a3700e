-- Worker processes that are alive by the database's clock, and those that died within the hour, with the number of jobs
-- that each holds. `counts` are their own counters, NULL before the first heartbeat.
select w.id, w.pod, w.job_types, w.queues, w.capacity, held.running, w.started_at, w.heartbeat_at,
    extract(epoch from now.now - w.heartbeat_at)::float8 as heartbeat_age_seconds, w.lease_until,
    w.ended_at is null and w.lease_until > now.now as is_alive, w.counts
from (select clock_timestamp() as now) now
join reactor.workers w on least(w.ended_at, w.lease_until) > now.now - interval '1 hour'
cross join lateral (
    select count(*)::int as running from reactor.jobs j
    where j.worker_id = w.id
        and j.id in (select unnest(c.job_ids) from reactor.claims c where c.worker_id = w.id)) held
order by w.pod, w.started_at, w.id
limit 1000
