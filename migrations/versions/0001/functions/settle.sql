-- How attempts end. `attempts` counts the attempt since its claim; `uncharged` subtracts it again.
--
-- | outcome    | attempts left | none left | attempts  | run_after | worker_id | error | recorded as |
-- | ---------- | ------------- | --------- | --------- | --------- | --------- | ----- | ----------- |
-- | completed  | completed     | completed | charged   | null      | null      | given |             |
-- | partial    | partial       | partial   | charged   | null      | null      | given |             |
-- | failed     | failed        | failed    | charged   | null      | null      | given |             |
-- | error      | pending       | failed    | charged   | delay     | null      | given | error       |
-- | snoozed    | pending       | pending   | uncharged | delay     | null      | given | snoozed     |
-- | unstarted  | pending       | pending   | uncharged | null      | null      | kept  |             |
-- | released   | pending       | pending   | uncharged | null      | null      | kept  | released    |
-- | crashed    | pending       | pending   | uncharged | null      | null      | kept  | crashed     |
-- | culprit    | pending       | failed    | charged   | null      | null      | given | crashed     |
-- | abandoned  | pending       | failed    | charged   | delay     | kept      | given | error       |
-- | lease_lost | pending       | failed    | charged   | null      | null      | given | lease_lost  |
-- | recovered  | pending       | pending   | 0         | null      | null      | given | lease_lost  |
--
-- A job that is pending again has neither attempt_id nor finished_at; a job that ended keeps the attempt_id. Only an
-- attempt that leaves its job pending is recorded in reactor.attempts. If the job keeps the error of an earlier attempt,
-- it also loses the started_at that this attempt set. Exceptions:
-- - released and crashed: after ten of them the job itself is the likely cause. It is charged, as a culprit is.
-- - abandoned: without a delay it fails. worker_id stays, and with it the scope, until the handler has stopped or its
--   process is dead.
--
-- All outcomes go through this one statement. (pod/hand_over.sql replaces the attempt of a job that stays running;
-- cancel and retry are not ends of attempts.) An attempt that is not returned was stale, and nothing was written for
-- it. The fence is a join clause: with `state = 'running'` as a constant, the planner may walk another index for each
-- row once the statistics say that nothing is running. The ids arrive sorted, which is the lock order; the rules are
-- expressions and not a table to join, because a join might change that order.
create or replace function reactor.settle(
    ids bigint[], attempt_ids uuid[], outcomes text[], results jsonb[], errors text[], messages text[],
    delays_seconds float8[], children int[], lock_wait_ms int)
    returns table (id bigint, state text)
-- A function because of its settings: a statement that was prepared while the table was small keeps a plan that reads
-- all of it (after an insert of 100,000 jobs: 40 ms for 200 of them instead of 6), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
begin
    -- Set for the transaction only: behind a pooler, other clients may share the session.
    if lock_wait_ms is not null then
        perform set_config('lock_timeout', lock_wait_ms::text, true);
    end if;
    return query
    with ended as materialized (
        select g.*, 'running' as fence,
            g.outcome in ('error', 'released', 'crashed', 'culprit', 'abandoned', 'lease_lost') as retries,
            g.outcome in ('unstarted', 'released', 'crashed') as undoes,
            -- The number of attempts that are not charged.
            case
                when g.outcome in ('snoozed', 'unstarted') then 1
                when g.outcome in ('released', 'crashed') then (
                    select case when count(*) < 10 then 1 else 0 end from reactor.attempts a
                    where a.job_id = g.id and a.outcome in ('released', 'crashed'))
                when g.outcome = 'recovered' then (select r.attempts from reactor.jobs r where r.id = g.id)
                else 0 end as refund
        from unnest(ids, attempt_ids, outcomes, results, errors, messages, delays_seconds, settle.children)
            as g (id, attempt_id, outcome, result, error, message, delay_seconds, children)
    ), settled as (
        update reactor.jobs j set
            (state, attempt_id, run_after, finished_at) = (
                select
                    case when r.again then 'pending' when e.retries then 'failed' else e.outcome end,
                    case when not r.again then j.attempt_id end,
                    case when r.again then clock_timestamp()
                        + nullif(make_interval(secs => greatest(e.delay_seconds, 0)), interval '0') end,
                    case when not r.again then clock_timestamp() end
                from (select e.refund > 0 or e.retries and j.attempts < j.quota
                    and (e.outcome <> 'abandoned' or e.delay_seconds is not null)) r (again)),
            attempts = j.attempts - e.refund,
            started_at = case when e.undoes and e.refund > 0 and j.started_at = j.locked_at then null
                else j.started_at end,
            worker_id = case when e.outcome = 'abandoned' then j.worker_id end,
            result = e.result,
            error = case when e.undoes and e.refund > 0 then j.error else e.error end,
            status_message = coalesce(e.message, j.status_message),
            -- A completed job that reported progress is at 1.
            progress = case when e.outcome = 'completed' and j.progress is not null then 1 else j.progress end,
            children = j.children + coalesce(e.children, 0),
            changed = pg_current_xact_id()
        from ended e
        where j.id = e.id and j.attempt_id = e.attempt_id and j.state = e.fence
        returning j.id, j.state, j.attempts + e.refund as number, j.locked_by, j.locked_at, e.attempt_id, e.outcome,
            e.error
    ), history as (
        insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
        select s.id, s.attempt_id, s.number, s.locked_by, s.locked_at,
            case s.outcome when 'culprit' then 'crashed' when 'abandoned' then 'error' when 'recovered' then 'lease_lost'
                else s.outcome end,
            s.error
        from settled s where s.state = 'pending' and s.outcome <> 'unstarted'
    )
    select s.id, s.state::text from settled s;
end
$$;
comment on function reactor.settle is
    'Ends attempts; returns the jobs that they still held, with their new states.';
