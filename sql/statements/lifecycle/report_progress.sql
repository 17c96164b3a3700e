-- Running attempts say how far they are ($3, NULL: as before) and what they are doing ($4, NULL: as before), many at once.
-- What does not come back was stale. The fence is a join clause, and $5 the patience with locks, as in settle.sql.
with said as materialized (
    select *, 'running' as fence, (select set_config('lock_timeout', coalesce($5::int::text, current_setting('lock_timeout')), true)) as patience
    from unnest($1::bigint[], $2::uuid[], $3::real[], $4::text[]) as s (id, attempt_id, progress, message)
)
update reactor.jobs j set
    progress = coalesce(s.progress, j.progress), status_message = coalesce(s.message, j.status_message),
    changed = pg_current_xact_id()
from said s
where j.id = s.id and j.attempt_id = s.attempt_id and j.state = s.fence
returning j.attempt_id
