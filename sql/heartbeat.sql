-- The worker $1 lives: its lease runs for $2 more seconds. Returns the attempts that the database says it has, so that it
-- can stop what it lost and give back what it does not know of. No row: it was taken for dead, and must stop.
update reactor.workers w set heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8)
where w.id = $1::uuid and w.ended_at is null and w.lease_until > clock_timestamp()
returning
    array(select j.id from reactor.jobs j where j.worker_id = $1::uuid and j.state = 'running' order by j.id) as job_ids,
    array(select j.attempt_id from reactor.jobs j where j.worker_id = $1::uuid and j.state = 'running' order by j.id)
        as attempt_ids
