-- Registers a worker process: id $1, pod $2, the types that it has handlers for $3, its queues $4 (NULL: all), its
-- capacity $5, and $6, the seconds that its lease lasts. It may be sent twice, if the first reply was lost.
insert into reactor.workers (id, pod, job_types, queues, capacity, lease_until)
values ($1::uuid, $2::text, $3::text[], $4::text[], $5::int, clock_timestamp() + make_interval(secs => $6::float8))
on conflict (id) do nothing
