-- Cancels unfinished jobs. A running job loses its fence at once, so that its attempt can write nothing more, and its
-- worker is notified; worker_id stays, and with it the scope, until the handler has stopped.
-- Lock order: rows of running jobs, as a settle locks them; then scopes, as a settle takes them next; then the rest.
create or replace function reactor.cancel(ids bigint[], reason text) returns table (id bigint, was text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    perform from reactor.jobs j where j.id = any (ids) and j.state = 'running' order by j.id for no key update;
    perform reactor.lock_scopes(array(
        select j.scope from reactor.jobs j
        where j.id = any (ids) and j.scope is not null and j.state in ('waiting', 'pending')));
    return query
        with target as materialized (
            select j.id, j.state, j.attempt_id, j.attempts, j.locked_by, j.locked_at, j.worker_id
            from reactor.jobs j
            where j.id = any (ids) and j.state in ('waiting', 'pending', 'running')
            order by j.id for no key update
        ), history as (
            insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, outcome, error)
            select t.id, t.attempt_id, t.attempts, t.locked_by, t.locked_at, 'preempted', reason
            from target t where t.state = 'running'
        ), notified as (
            select pg_notify('reactor_cancel', json_build_object(
                'worker_id', t.worker_id, 'job_id', t.id, 'attempt_id', t.attempt_id)::text)
            from target t where t.state = 'running'
        ), cancelled as (
            update reactor.jobs j set
                state = 'cancelled', phase = 'cancelled', attempt_id = null, run_after = null, parked = false,
                error = reason, finished_at = clock_timestamp(), changed_xid = txid_current()
            from target t where j.id = t.id and (select count(*) from notified) >= 0
            returning j.id
        )
        select t.id, t.state from target t join cancelled c on c.id = t.id;
end
$$;
comment on function reactor.cancel is 'Cancels unfinished jobs for a reason; returns them with their previous states.';
