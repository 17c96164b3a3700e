-- The worker $1 lives: its lease runs for $2 more seconds. No row: it was taken for dead, and must stop.
update reactor.workers w set
    heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8)
where w.id = $1::uuid and w.ended_at is null and w.lease_until > clock_timestamp()
returning w.id
