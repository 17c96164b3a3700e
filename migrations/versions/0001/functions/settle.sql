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
-- A job that is pending again has neither attempt_id nor finished_at; a job that ended keeps its attempt_id. Only an
-- attempt that leaves its job pending is recorded in reactor.attempts. A job whose first claim is unstarted loses the
-- started_at that the claim set. Two exceptions:
-- - released, crashed: after ten of them the job itself is the likely cause, and the attempt is charged, as culprit is.
-- - abandoned (a timeout, and the handler can't be stopped): without a delay, the job fails. It keeps worker_id, and
--   with it the scope, until the handler has stopped or its process is dead.
-- - A job that is delivered at most once, and whose handler may have started (started_once), has no attempts left, and
--   none is refunded: in place of pending it is failed. Only an operator can start it again (recovered, and a retry).
--   The worker sends a failure in place of its snooze; and what is unstarted has not committed a start.
-- Not in the table: pod/hand_over.sql replaces the attempt of a job that stays running.

-- The attempts that an outcome does not charge, where that takes a query. A function, so that the statement that ends
-- all other attempts does not open these tables (25 µs of 300).
create or replace function reactor.refund(job_id bigint, outcome text) returns int
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    case outcome
        when 'recovered' then
            return (select j.attempts from reactor.jobs j where j.id = refund.job_id);
        when 'released', 'crashed' then
            return (select case when count(*) < 10 then 1 else 0 end from reactor.attempts a
                where a.job_id = refund.job_id and a.outcome in ('released', 'crashed'))
                * (select case when j.started_once then 0 else 1 end from reactor.jobs j where j.id = refund.job_id);
        else
            raise exception 'reactor: unknown outcome %', outcome using errcode = 'invalid_parameter_value';
    end case;
end
$$;
comment on function reactor.refund is
    'The number of attempts that a released, crashed or recovered job is not charged.';

-- Ends attempts, all outcomes in one statement. An attempt that is not returned was stale, and nothing was written for
-- it. The ids arrive sorted, which is the lock order; the rules are expressions and not a table, because a join with it
-- might change that order.
--
-- Most batches consist of completed jobs only, and all of them are written: then one row without an id is returned.
create or replace function reactor.settle(
    ids bigint[], attempt_ids uuid[], outcomes text[], results jsonb[], errors text[], messages text[],
    delays_seconds float8[], children int[], lock_wait_ms int)
    returns table (id bigint, state text)
-- A function because of its settings: a statement that was prepared while the table was small keeps a plan that reads
-- all of it (after an insert of 100,000 jobs: 40 ms for 200 of them instead of 6), until the next ANALYZE.
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
    set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set enable_hashjoin = off
    set jit = off as $$
#variable_conflict use_column
declare
    ended_at timestamptz := clock_timestamp();
    written int;
    setting text;
begin
    -- Set for the transaction only: behind a pooler, other clients may share the session.
    setting := set_config('reactor.notify_now', 'on', true);  -- nothing but the commit follows
    if outcomes <@ array['completed', 'partial', 'failed', 'error', 'snoozed'] then
        setting := set_config('reactor.claims_next', 'on', true);  -- see reactor.leave_places
    end if;
    if current_setting('reactor.children', true) <> '' and reactor.submitted_children() > 0 then
        -- The transaction of one attempt, in which its handler has submitted jobs.
        children := array[coalesce(children[1], 0) + reactor.submitted_children()];
    end if;
    if lock_wait_ms is not null then
        setting := set_config('lock_timeout', lock_wait_ms::text, true);
    end if;
    if children is null and 'completed' = all (outcomes) then
        update reactor.jobs j set
            state = 'completed', phase = case when j.exclusive then 'completed' else 'taken' end,
            finished_at = ended_at, worker_id = null, holds_scope = false, result = e.result, error = null,
            status_message = coalesce(e.message, j.status_message),
            -- A completed job that reported progress is at 1.
            progress = case when j.progress is not null then 1 end, changed_xid = txid_current()
        from unnest(ids, attempt_ids, results, messages) e (id, attempt_id, result, message)
        where j.id = e.id and j.attempt_id = e.attempt_id and j.state = 'running';
        get diagnostics written = row_count;
        if written = cardinality(ids) then
            return query select null::bigint, 'completed';
        else
            return query select j.id, j.state from unnest(ids, attempt_ids) e (id, attempt_id)
                join reactor.jobs j on j.id = e.id and j.attempt_id = e.attempt_id and j.state = 'completed'
                    and j.changed_xid = txid_current();
        end if;
        return;
    end if;
    if outcomes && array['released', 'crashed'] then
        -- reactor.refund, in the next statement, then sees starts that were being committed (started_once).
        perform from reactor.jobs j where j.id = any (ids) and j.state = 'running' order by j.id for no key update;
    end if;
    return query
    with ended as materialized (
        select g.*,
            nullif(make_interval(secs => greatest(g.delay_seconds, 0)), interval '0') as delay,
            case
                when g.outcome in ('completed', 'partial', 'failed', 'error') then 0
                when g.outcome in ('culprit', 'abandoned', 'lease_lost') then 0
                when g.outcome in ('snoozed', 'unstarted') then 1
                else reactor.refund(g.id, g.outcome) end as refund,
            g.outcome not in ('completed', 'partial', 'failed')
                and (g.outcome <> 'abandoned' or g.delay_seconds is not null) as retries
        from unnest(ids, attempt_ids, outcomes, results, errors, messages, delays_seconds, settle.children)
            as g (id, attempt_id, outcome, result, error, message, delay_seconds, children)
    ), settled as (
        update reactor.jobs j set
            state = case when e.refund > 0 or e.retries and j.attempts < j.quota then 'pending'
                when e.retries or e.outcome = 'abandoned' then 'failed' else e.outcome end,
            phase = case when e.refund > 0 or e.retries and j.attempts < j.quota
                    then case when e.delay is null then 'ready' else 'scheduled' end
                when e.outcome = 'completed' and not e.retries
                    then case when j.exclusive then 'completed' else 'taken' end
                else 'failed' end,
            attempt_id = case when e.refund > 0 or e.retries and j.attempts < j.quota then null else j.attempt_id end,
            run_after = case when e.refund > 0 or e.retries and j.attempts < j.quota then ended_at + e.delay end,
            finished_at = case when e.refund > 0 or e.retries and j.attempts < j.quota then null else ended_at end,
            requeued_at = case when e.outcome <> 'unstarted' and (e.refund > 0 or e.retries and j.attempts < j.quota)
                then ended_at else j.requeued_at end,
            ready_at = case when e.outcome <> 'unstarted' and (e.refund > 0 or e.retries and j.attempts < j.quota)
                then null else j.ready_at end,
            attempts = j.attempts - e.refund,
            started_at = case when e.outcome = 'unstarted' and j.started_at = j.locked_at then null
                else j.started_at end,
            worker_id = case when e.outcome = 'abandoned' then j.worker_id end,
            holds_scope = j.holds_scope and e.outcome = 'abandoned',
            result = e.result,
            error = case when e.refund > 0 and e.outcome in ('unstarted', 'released', 'crashed') then j.error
                when j.started_once and e.retries and e.outcome <> 'recovered'
                    then e.error || E'\n\nIt is delivered at most once, and does not start again.'
                else e.error end,
            started_once = j.started_once and e.outcome <> 'recovered',
            status_message = coalesce(e.message, j.status_message),
            progress = case when e.outcome = 'completed' and j.progress is not null then 1 else j.progress end,
            children = j.children + coalesce(e.children, 0),
            changed_xid = txid_current()
        from ended e
        where j.id = e.id and j.attempt_id = e.attempt_id and j.state = 'running'
        returning j.id, j.state, j.attempts + e.refund as number, j.locked_by, j.locked_at, e.attempt_id, e.outcome,
            e.error
    ), history as (
        insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error,
            waited_seconds, queued_seconds)
        select s.id, s.attempt_id, s.number, s.locked_by, s.locked_at, ended_at,
            case s.outcome when 'culprit' then 'crashed' when 'abandoned' then 'error'
                when 'recovered' then 'lease_lost' else s.outcome end,
            s.error, reactor.waited(o), reactor.queued(o)
        -- As it was before this statement.
        from settled s join reactor.jobs o on o.id = s.id
        where s.state = 'pending' and s.outcome <> 'unstarted'
    )
    select s.id, s.state from settled s;
end
$$;
comment on function reactor.settle is
    'Ends attempts; returns the jobs that they still held, with their new states '
    '(one row without an id: all completed).';
