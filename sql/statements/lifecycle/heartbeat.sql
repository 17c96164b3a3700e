-- Renews the lease of the worker $1 for $2 seconds, and stores its counters $3 (NULL: unchanged). No row: it was
-- considered dead, and must stop. A lease that is over can be renewed until a sweeper has ended the worker: after an
-- outage all leases may be over, and living pods come first. A long gap since the last heartbeat restarts
-- contact_since, which is never in the future, also if the clock was set back. The columns are in no index, so that
-- this remains a HOT update.
update reactor.workers w set
    heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8),
    contact_since = case when reactor.is_in_contact(w.heartbeat_at, w.lease_until)
        then least(w.contact_since, clock_timestamp()) else clock_timestamp() end,
    counts = coalesce($3::jsonb, w.counts)
where w.id = $1::uuid and w.ended_at is null
returning w.id
