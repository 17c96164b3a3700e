-- Plans steps of the attempt $2 of the job $1: names $3, positions $4, how often each may run $10, pending or ($5)
-- started. A step that exists starts over, unless it is completed; one that was interrupted keeps the number of its
-- runs, and waits on if it waits for the next one. $6: the milliseconds to wait for a lock (NULL: the server's
-- setting). $7: the job's message (NULL: unchanged). $9: its step_counts (NULL: unchanged, or counted here if $8).
-- Returns the steps that the job had before, if ($8) they are asked for and there are any, else one empty row. If the
-- attempt is stale, nothing is written and no row is returned.
-- The job's row is locked: a transaction that takes the job from this attempt at the same moment must wait for this
-- one, or this one for it; reading the row without a lock would let both happen. FOR NO KEY UPDATE and not FOR SHARE,
-- because the row may be written, and two that share a lock can't both raise it.
with lock_timeout as materialized (
    select set_config('lock_timeout', coalesce($6::int::text, current_setting('lock_timeout')), true)
), held as materialized (
    select j.id, clock_timestamp() as now from reactor.jobs j cross join lock_timeout
    where j.id = $1::bigint and j.attempt_id = $2::uuid and j.state = 'running' for no key update of j
), before as materialized (
    select s.name, s.position, s.state, s.result, s.attempts, s.run_after, s.submitted,
        s.state = 'pending' and s.run_after > h.now as waits
    from held h join reactor.steps s on s.job_id = h.id and $8::boolean
), planned as (
    insert into reactor.steps as s (job_id, name, position, max_attempts, state, started_at)
    select h.id, p.name, p.position, p.max_attempts, case when $5::boolean then 'running' else 'pending' end,
        case when $5::boolean then h.now end
    from held h cross join unnest($3::text[], $4::int[], $10::int[]) as p (name, position, max_attempts)
    on conflict (job_id, name) do update set
        position = excluded.position, max_attempts = excluded.max_attempts,
        state = case when s.state = 'pending' and s.run_after > clock_timestamp() then 'pending'
            else excluded.state end,
        started_at = case when s.state = 'pending' and s.run_after > clock_timestamp() then s.started_at
            else excluded.started_at end,
        attempts = case when s.state in ('pending', 'running') then s.attempts else 0 end,
        run_after = case when s.state = 'pending' then s.run_after end,
        ran_seconds = case when s.state in ('pending', 'running') then s.ran_seconds end,
        error = case when s.state in ('pending', 'running') then s.error end,
        finished_at = null, result = null, changed_xid = txid_current()
    where s.state <> 'completed'
), counted as (
    select jsonb_build_object('total', count(*), 'pending', count(*) filter (where c.state = 'pending'),
        'running', count(*) filter (where c.state = 'running'),
        'completed', count(*) filter (where c.state = 'completed'),
        'failed', count(*) filter (where c.state = 'failed'),
        'skipped', count(*) filter (where c.state = 'skipped'),
        'current', max(c.name) filter (where c.state = 'running')) as counts
    from (
        select coalesce(p.name, b.name) as name,
            case when p.name is null or b.state = 'completed' then b.state
                when b.waits or not $5::boolean then 'pending' else 'running' end as state
        from before b full join unnest($3::text[]) p (name) on p.name = b.name) c
), reported as (
    update reactor.jobs j set
        status_message = coalesce($7::text, j.status_message),
        step_counts = coalesce(
            $9::jsonb, case when $8::boolean then (select c.counts from counted c) end, j.step_counts),
        changed_xid = txid_current()
    from held h where j.id = h.id and ($7::text is not null or $8::boolean or $9::jsonb is not null)
)
select b.name, b.state, b.result, b.attempts, extract(epoch from b.run_after - h.now)::float8 as pause_seconds,
    b.submitted
from held h left join before b on true
order by b.position, b.name
