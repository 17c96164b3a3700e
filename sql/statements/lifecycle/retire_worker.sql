-- The worker $1 has ended, after it had done $2 (NULL: not known); what it still holds is dead from now on.
update reactor.workers w set ended_at = clock_timestamp(), counts = coalesce($2::jsonb, w.counts)
where w.id = $1::uuid and w.ended_at is null
