-- Releases attempts that can't continue, so that their jobs run again. $3: released (by a shutdown) or crashed (with
-- their process); $4: why. $5: not charged an attempt. Uncharged releases are bounded: after ten of them the job itself
-- is the likely cause, and it is charged. $3 NULL: the attempts never started; they are not charged and leave no
-- history. An attempt that is not returned was stale.
with given as materialized (
    select g.id, g.attempt_id, 'running' as fence,
        $3::text is null or $5::boolean and (
            select count(*) < 10 from reactor.attempts a where a.job_id = g.id
                and a.outcome in ('released', 'crashed')) as uncharged
    from unnest($1::bigint[], $2::uuid[]) as g (id, attempt_id)
), released as (
    update reactor.jobs j set
        state = case when g.uncharged or j.attempts < j.quota then 'pending' else 'failed' end,
        attempts = j.attempts - case when g.uncharged then 1 else 0 end,
        attempt_id = case when g.uncharged or j.attempts < j.quota then null else j.attempt_id end,
        finished_at = case when g.uncharged or j.attempts < j.quota then null else clock_timestamp() end,
        started_at = case when g.uncharged and j.started_at = j.locked_at then null else j.started_at end,
        worker_id = null,
        error = case when g.uncharged then j.error else $4::text end,
        changed = pg_current_xact_id()
    from given g
    where j.id = g.id and j.attempt_id = g.attempt_id and j.state = g.fence
    returning j.id, j.state, j.attempts + case when g.uncharged then 1 else 0 end as number, j.locked_by, j.locked_at,
        g.attempt_id
), history as (
    insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
    select r.id, r.attempt_id, r.number, r.locked_by, r.locked_at, $3::text, $4::text
    from released r where r.state = 'pending' and $3::text is not null
)
select id, state from released
