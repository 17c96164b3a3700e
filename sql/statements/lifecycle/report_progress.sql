-- Writes the progress ($3, NULL: unchanged) and the message ($4, NULL: unchanged) of a batch of running attempts. An
-- attempt that is not returned was stale. $5: the
-- milliseconds to wait for a lock (NULL: the server's setting).
with reported as materialized (
    select *,
        (select set_config('lock_timeout', coalesce($5::int::text, current_setting('lock_timeout')), true))
            as lock_timeout
    from unnest($1::bigint[], $2::uuid[], $3::real[], $4::text[]) as s (id, attempt_id, progress, message)
)
update reactor.jobs j set
    progress = coalesce(s.progress, j.progress), status_message = coalesce(s.message, j.status_message),
    changed_xid = txid_current()
from reported s
where j.id = s.id and j.attempt_id = s.attempt_id and j.state = 'running'
returning j.attempt_id
