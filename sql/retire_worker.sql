-- The worker $1 has ended; what it still holds is dead from now on.
update reactor.workers w set ended_at = clock_timestamp() where w.id = $1::uuid and w.ended_at is null
