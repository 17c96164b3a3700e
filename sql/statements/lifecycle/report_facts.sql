-- As report_progress.sql, with facts ($6, JSON objects) that are added to the meta of the jobs, and whether their
-- handlers are about to start and must not start again ($7): then this is the last attempt. A statement of its own,
-- because both are rare, and meta is checked wherever it is set.
with reported as materialized (
    select *,
        (select set_config('lock_timeout', coalesce($5::int::text, current_setting('lock_timeout')), true))
            as lock_timeout
    from unnest($1::bigint[], $2::uuid[], $3::real[], $4::text[], $6::jsonb[], $7::boolean[])
        as s (id, attempt_id, progress, message, meta, starts_once)
)
update reactor.jobs j set
    progress = coalesce(s.progress, j.progress), status_message = coalesce(s.message, j.status_message),
    meta = case when s.meta is null then j.meta else coalesce(j.meta, '{}') || s.meta end,
    started_once = j.started_once or s.starts_once,
    quota = case when s.starts_once then j.attempts else j.quota end,
    changed_xid = txid_current()
from reported s
where j.id = s.id and j.attempt_id = s.attempt_id and j.state = 'running'
returning j.attempt_id
