-- Running attempts say how far they are ($3, NULL: as before) and what they are doing ($4, NULL: as before), many at once.
-- $5: how many milliseconds to wait for a lock. What does not come back was stale. The fence is a join clause for the reason
-- that reactor.settle gives.
with patience as materialized (
    select set_config('lock_timeout', $5::int::text, true)
), said as materialized (
    select *, 'running' as fence
    from unnest($1::bigint[], $2::uuid[], $3::real[], $4::text[]) as s (id, attempt_id, progress, message)
)
update reactor.jobs j set
    progress = coalesce(s.progress, j.progress), status_message = coalesce(s.message, j.status_message),
    changed = pg_current_xact_id()
from said s cross join patience
where j.id = s.id and j.attempt_id = s.attempt_id and j.state = s.fence
returning j.attempt_id
