-- A worker process introduces itself, perhaps twice, if it did not hear the answer: id $1, pod $2, the types it has handlers for $3, its queues $4 (NULL: all), how many
-- jobs at once $5, and for how many seconds it may be silent $6.
insert into reactor.workers (id, pod, job_types, queues, capacity, lease_until)
values ($1::uuid, $2::text, $3::text[], $4::text[], $5::int, clock_timestamp() + make_interval(secs => $6::float8))
on conflict (id) do nothing
