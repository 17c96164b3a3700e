-- The pod that holds the job $1, and whether its worker process is alive by the database's clock.
select j.state, j.locked_by,
    coalesce(w.ended_at is null and w.lease_until > clock_timestamp(), false) as is_alive,
    extract(epoch from w.lease_until - clock_timestamp())::float8 as lease_seconds
from reactor.jobs j left join reactor.workers w on w.id = j.worker_id
where j.id = $1::bigint
