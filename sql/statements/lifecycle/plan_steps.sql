-- Plans steps of the attempt $2 of the job $1: names $3, positions $4, pending or ($5) started. A step that exists
-- starts over, unless it is completed. $6: the milliseconds to wait for a lock (NULL: the server's setting). $7: the
-- job's message (NULL: unchanged). Returns the steps that the job had before, if ($8) they are asked for and there are
-- any, else one empty row. If the attempt is stale, nothing is written and no row is returned.
-- The job's row is locked: a transaction that takes the job from this attempt at the same moment must wait for this
-- one, or this one for it; reading the row without a lock would let both happen. FOR NO KEY UPDATE and not FOR SHARE,
-- because the row may be written, and two that share a lock can't both raise it.
with lock_timeout as materialized (
    select set_config('lock_timeout', coalesce($6::int::text, current_setting('lock_timeout')), true)
), held as materialized (
    select j.id from reactor.jobs j cross join lock_timeout
    where j.id = $1::bigint and j.attempt_id = $2::uuid and j.state = 'running' for no key update of j
), planned as (
    insert into reactor.steps as s (job_id, name, position, state, started_at)
    select h.id, p.name, p.position, case when $5::boolean then 'running' else 'pending' end,
        case when $5::boolean then clock_timestamp() end
    from held h cross join unnest($3::text[], $4::int[]) as p (name, position)
    on conflict (job_id, name) do update set
        position = excluded.position, state = excluded.state, started_at = excluded.started_at, finished_at = null,
        result = null, error = null, changed_xid = txid_current()
    where s.state <> 'completed'
), reported as (
    update reactor.jobs j set status_message = $7::text, changed_xid = txid_current()
    from held h where j.id = h.id and $7::text is not null
)
select s.name, s.state, s.result from held h left join reactor.steps s on s.job_id = h.id and $8::boolean
order by s.position, s.name
