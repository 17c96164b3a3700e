-- The worker $1 lives: its lease runs for $2 more seconds, and it has done $3 (NULL: nothing new). No row: it was taken for
-- dead, and must stop. What it has done is in no index, so that this stays a HOT update.
update reactor.workers w set
    heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8),
    counts = coalesce($3::jsonb, w.counts)
where w.id = $1::uuid and w.ended_at is null and w.lease_until > clock_timestamp()
returning w.id
