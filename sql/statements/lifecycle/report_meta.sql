-- As report_progress.sql, with facts ($6, JSON objects) that are added to the meta of the jobs. A statement of its own,
-- because meta is checked wherever it is set.
with reported as materialized (
    select *,
        (select set_config('lock_timeout', coalesce($5::int::text, current_setting('lock_timeout')), true))
            as lock_timeout
    from unnest($1::bigint[], $2::uuid[], $3::real[], $4::text[], $6::jsonb[])
        as s (id, attempt_id, progress, message, meta)
)
update reactor.jobs j set
    progress = coalesce(s.progress, j.progress), status_message = coalesce(s.message, j.status_message),
    meta = case when s.meta is null then j.meta else coalesce(j.meta, '{}') || s.meta end,
    changed_xid = txid_current()
from reported s
where j.id = s.id and j.attempt_id = s.attempt_id and j.state = 'running'
returning j.attempt_id
