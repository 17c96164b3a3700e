-- Registers a worker process: id $1, pod $2, the types that it has handlers for $3, its queues $4 (NULL: all), its
-- capacity $5, and $6, the seconds that its lease lasts. It may be sent twice, if the first reply was lost. It
-- continues the contact of those that were there before it.
insert into reactor.workers (id, pod, job_types, queues, capacity, lease_until, contact_since)
select $1::uuid, $2::text, $3::text[], $4::text[], $5::int, clock_timestamp() + make_interval(secs => $6::float8),
    coalesce(min(v.contact_since), clock_timestamp())
from reactor.workers v where reactor.is_in_contact(v.heartbeat_at, v.lease_until)
on conflict (id) do nothing
