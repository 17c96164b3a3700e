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
-- Ends attempts, all outcomes in one statement. An attempt that is not returned was stale, and nothing was written for
-- it. Outcomes: completed, partial, failed; error (pending while attempts are left, else failed); snoozed (pending, not
-- charged). The fence is a join clause: with `state = 'running'` as a constant, the planner may walk another index for
-- each row once the statistics say that nothing is running. The ids arrive sorted, which is the lock order.
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
        select *, 'running' as fence
        from unnest(ids, attempt_ids, outcomes, results, errors, messages, delays_seconds, settle.children)
            as e (id, attempt_id, outcome, result, error, message, delay_seconds, children)
    ), settled as (
        update reactor.jobs j set
            state = case e.outcome
                when 'snoozed' then 'pending'
                when 'error' then case when j.attempts < j.quota then 'pending' else 'failed' end
                else e.outcome end,
            attempts = j.attempts - case when e.outcome = 'snoozed' then 1 else 0 end,
            attempt_id = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota then null
                else j.attempt_id end,
            run_after = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota
                then clock_timestamp() + nullif(make_interval(secs => greatest(e.delay_seconds, 0)), interval '0') end,
            finished_at = case when e.outcome = 'snoozed' or e.outcome = 'error' and j.attempts < j.quota then null
                else clock_timestamp() end,
            worker_id = null,
            result = e.result,
            error = e.error,
            status_message = coalesce(e.message, j.status_message),
            -- A completed job that reported progress is at 1.
            progress = case when e.outcome = 'completed' and j.progress is not null then 1 else j.progress end,
            children = j.children + coalesce(e.children, 0),
            changed = pg_current_xact_id()
        from ended e
        where j.id = e.id and j.attempt_id = e.attempt_id and j.state = e.fence
        returning j.id, j.state, j.attempts, j.locked_by, j.locked_at, e.attempt_id, e.outcome, e.error
    ), history as (
        insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
        select s.id, s.attempt_id, s.attempts + case when s.outcome = 'snoozed' then 1 else 0 end, s.locked_by,
            s.locked_at, s.outcome, s.error
        from settled s where s.state = 'pending'
    )
    select s.id, s.state::text from settled s;
end
$$;
comment on function reactor.settle is
    'Ends attempts; returns the jobs that they still held, with their new states.';
