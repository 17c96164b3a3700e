-- Cancels unfinished jobs. A running job loses its fence at once, so that its attempt can write nothing more, and its
-- worker is notified; worker_id stays, and with it the scope, until the handler has stopped.
-- Locks: rows of running jobs by id, as a settle locks them; then all others that the cancel will touch: the jobs
-- themselves and their dependants, as far as reactor.resolve_dependencies handles them at once. These are tried. If
-- another transaction has one of them, the cancel waits for it without any lock of its own, and begins again: a job may
-- start meanwhile, and another cancel would then lock it before its dependants. The last try waits for all, by id.
create or replace function reactor.cancel(ids bigint[], reason text) returns table (id bigint, was text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    tries constant int := 10;
    running bigint[];
    wanted bigint[];
    locked bigint[];
    missing bigint;
begin
    -- A retry must not start them over later. Locked before the jobs, as by retry_more.
    if exists (select from reactor.retry_parts p where p.todo = 'start') then
        perform from reactor.retries r order by r.id for update;
        update reactor.retry_parts p set ids = array(
            select i.id from unnest(p.ids) i (id) where i.id not in (select unnest(cancel.ids)))
        where p.todo = 'start' and p.ids && cancel.ids;
    end if;
    for try in 1 .. tries loop
        begin
            running := array(
                select j.id from reactor.jobs j where j.id = any (ids) and j.state = 'running' order by j.id
                for no key update);
            wanted := array(
                select e.job_id
                from (select t.id from reactor.jobs t
                    where t.id = any (ids) and t.state in ('waiting', 'pending', 'running') order by t.id) t
                cross join lateral (
                    select d.job_id from reactor.dependencies d
                    where not d.resolved and (d.depends_on, d.job_id) > (t.id, 0)
                        and (d.depends_on, d.job_id) <= (t.id, 9223372036854775807)
                    order by d.depends_on, d.job_id limit 1000) e
                limit 1000);
            if try < tries then
                locked := array(
                    select j.id from reactor.jobs j
                    where j.state in ('waiting', 'pending') and j.id = any (ids || wanted)
                    order by j.id for no key update skip locked);
            else
                perform from reactor.jobs j
                where j.state in ('waiting', 'pending') and j.id = any (ids || wanted)
                order by j.id for no key update;
                locked := ids || wanted;
            end if;
            -- A new statement: some may have started in between.
            select min(m.id) into missing
            from (
                select j.id from reactor.jobs j
                where j.state in ('waiting', 'pending') and j.id = any (ids || wanted)
                    or j.state = 'running' and j.id = any (ids)
                except
                select unnest(running || locked)) m;
            exit when missing is null;
            raise exception using errcode = 'RX001';
        exception when sqlstate 'RX001' then
            -- The rollback has released the locks.
        end;
        begin
            perform from reactor.jobs j where j.id = missing for no key update;
            raise exception using errcode = 'RX001';
        exception when sqlstate 'RX001' then
        end;
    end loop;
    return query
        with target as materialized (
            select j.id, j.state, j.attempt_id, j.attempts, j.locked_by, j.locked_at, j.worker_id,
                reactor.waited(j) as waited, reactor.queued(j) as queued, clock_timestamp() as now
            from reactor.jobs j
            where j.id = any (ids) and j.state in ('waiting', 'pending', 'running')
            order by j.id for no key update
        ), history as (
            insert into reactor.attempts (job_id, attempt_id, number, pod, started_at, ended_at, outcome, error,
                waited_seconds, queued_seconds)
            select t.id, t.attempt_id, t.attempts, t.locked_by, t.locked_at, t.now, 'preempted', reason, t.waited,
                t.queued
            from target t where t.state = 'running'
        ), notified as (
            select pg_notify('reactor_cancel', json_build_object(
                'worker_id', t.worker_id, 'job_id', t.id, 'attempt_id', t.attempt_id)::text)
            from target t where t.state = 'running'
        ), cancelled as (
            update reactor.jobs j set
                state = 'cancelled', phase = 'cancelled', attempt_id = null, parked = false, error = reason,
                ready_at = coalesce(j.run_after, j.ready_at), run_after = null, finished_at = t.now,
                requeued_at = case when t.state = 'running' then t.now else j.requeued_at end,
                changed_xid = txid_current()
            from target t where j.id = t.id and (select count(*) from notified) >= 0
            returning j.id
        )
        select t.id, t.state from target t join cancelled c on c.id = t.id;
end
$$;
comment on function reactor.cancel is 'Cancels unfinished jobs for a reason; returns them with their previous states.';
