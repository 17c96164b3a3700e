-- Ends the worker $1 with its last counters $2 (NULL: unknown). What it still holds may be taken back from now on.
update reactor.workers w set ended_at = clock_timestamp(), counts = coalesce($2::jsonb, w.counts)
where w.id = $1::uuid and w.ended_at is null
