-- Renews the lease of the worker $1 for $2 seconds, and stores its counters $3 (NULL: unchanged). No row: it was
-- considered dead, and must stop. The counters are in no index, so that this remains a HOT update.
update reactor.workers w set
    heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8),
    counts = coalesce($3::jsonb, w.counts)
where w.id = $1::uuid and w.ended_at is null and w.lease_until > clock_timestamp()
returning w.id
