-- Writes down steps that the attempt $2 of the job $1 is going to take: names $3, positions $4, pending or ($5) begun. One that
-- is there already starts anew, unless it is completed. $6: how many milliseconds to wait for a lock (NULL: as is set).
-- Nothing comes back, and nothing is written, if the attempt is stale. FOR SHARE, because whoever takes the job from the
-- attempt at this moment must wait for us, or we for them: a mere look at the row would let both happen.
with patience as materialized (
    select set_config('lock_timeout', coalesce($6::int::text, current_setting('lock_timeout')), true)
), held as materialized (
    select j.id from reactor.jobs j cross join patience
    where j.id = $1::bigint and j.attempt_id = $2::uuid and j.state = 'running' for share of j
), planned as (
    insert into reactor.steps as s (job_id, name, position, state, started_at)
    select h.id, p.name, p.position, case when $5::boolean then 'running' else 'pending' end,
        case when $5::boolean then clock_timestamp() end
    from held h cross join unnest($3::text[], $4::int[]) as p (name, position)
    on conflict (job_id, name) do update set
        position = excluded.position, state = excluded.state, started_at = excluded.started_at, finished_at = null,
        result = null, error = null, changed = pg_current_xact_id()
    where s.state <> 'completed'
)
select id from held
