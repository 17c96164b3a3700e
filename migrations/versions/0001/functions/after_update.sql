-- What follows any update of jobs, by the engine or by hand, by what the changed rows are now: resolves dependencies,
-- frees scopes and places in limits, resets interrupted steps and notifies. The previous versions of the rows are not
-- looked at, which would cost a tenth of every claim and settle: what an update may have changed is done again, and
-- doing it again changes nothing.
create or replace function reactor.after_jobs_updated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off set enable_seqscan = off as $$
declare
    first_ended bigint;
    any_special boolean;
    any_interrupted boolean;
    any_by_hand boolean;
    runnable boolean;
    has_scopes boolean;
    any_arrived boolean;
    any_departed boolean;
    ended bigint[];
    interrupted bigint[];
    finished bigint[];
    freed text[];
    by_xid bigint;
begin
    -- Most updates only start or complete jobs without a scope and without limits.
    select min(u.id) filter (where u.finished_at is not null),
        bool_or(u.changed_xid <> txid_current() or u.phase <> 'taken' or u.state not in ('running', 'completed')
            or u.scope is not null or u.counted or u.step_counts is not null and u.finished_at is not null)
    into first_ended, any_special
    from updated u;

    if any_special then
        select
            bool_or(u.step_counts is not null and u.state not in ('waiting', 'running') and u.locked_at is not null),
            bool_or(u.phase in ('ready', 'scheduled')),
            bool_or(u.scope is not null and not u.holds_scope),
            bool_or(u.lane is not null and u.state = 'pending'),
            bool_or(u.counted and u.worker_id is null),
            -- The engine's statements set these.
            bool_or(u.changed_xid <> txid_current()
                or u.phase <> reactor.phase(u.state, u.run_after, u.parked, u.job_type, u.exclusive)
                or u.holds_scope <> (u.scope is not null and u.worker_id is not null))
        into any_interrupted, runnable, has_scopes, any_arrived, any_departed, any_by_hand
        from updated u;
    end if;

    if any_by_hand then
        perform reactor.check_update_by_hand(u.state, u.progress) from updated u;
        update reactor.jobs j set
            changed_xid = txid_current(), holds_scope = j.scope is not null and j.worker_id is not null,
            phase = reactor.phase(j.state, j.run_after, j.parked, j.job_type, j.exclusive)
        where j.id in (select u.id from updated u where u.changed_xid <> txid_current()
            or u.phase <> reactor.phase(u.state, u.run_after, u.parked, u.job_type, u.exclusive)
            or u.holds_scope <> (u.scope is not null and u.worker_id is not null));
        insert into reactor.claims (worker_id, job_ids)
        select u.worker_id, array_agg(u.id) from updated u where u.worker_id is not null group by u.worker_id;
        first_ended := coalesce(first_ended, 0);
    end if;
    if first_ended is not null then
        if current_setting('transaction_isolation') <> 'read committed' and exists (
            select from updated u where u.state in ('completed', 'partial', 'failed', 'cancelled')
                and u.finished_at >= transaction_timestamp() and u.inserted_xid <> txid_current())
        then
            raise exception 'reactor: a job can''t be ended in a % transaction',
                current_setting('transaction_isolation')
                using errcode = 'feature_not_supported',
                hint = 'Use READ COMMITTED: the transaction''s snapshot may not show all jobs that wait for this one.';
        end if;
        -- Edges of older jobs are not looked at: while an old snapshot is open, there may be many dead ones.
        if exists (select from reactor.dependencies d where d.depends_on >= first_ended and not d.resolved) then
            -- Not those that ended before: what their dependants needed is known.
            select array_agg(u.id) into ended from updated u
            where u.state in ('completed', 'partial', 'failed', 'cancelled')
                and (u.finished_at is null or u.finished_at >= transaction_timestamp()
                    or u.changed_xid <> txid_current());
        end if;
    end if;
    if ended is not null then
        perform reactor.resolve_dependencies(ended);
    end if;
    if has_scopes then
        -- A scope may be free when its current job is not held any more, or when a job that was unparked has ended or
        -- is not due.
        select array_agg(distinct u.scope) into freed from updated u
        where u.scope is not null and not u.holds_scope and u.inserted_xid <> txid_current()
            and (u.is_current or u.finished_at >= transaction_timestamp() or u.phase in ('scheduled', 'waiting')
                or u.changed_xid <> txid_current());
        if freed is not null then
            perform reactor.free_scopes(freed);
            -- A claim that found a ready job of the scope while we held its lock has skipped it.
            runnable := true;
        end if;
    end if;
    if any_arrived then
        insert into reactor.arrivals (queue, job_type, lane, priority, xid)
        select distinct u.queue, u.job_type, u.lane, u.priority, txid_current() from updated u
        where u.lane is not null and u.state = 'pending' and not u.parked and u.run_after is null
            and u.job_type is not null;
    end if;
    if any_departed then
        perform reactor.leave_places(array(select u.id from updated u where u.counted and u.worker_id is null));
    end if;
    if runnable then
        perform reactor.notify_jobs();
    end if;
    -- An attempt that ends without finishing its job leaves steps in the state running; a crashed one can't reset them.
    if any_interrupted then
        select array_agg(u.id) filter (where u.state in ('pending', 'failed', 'cancelled')),
            array_agg(u.id) filter (where u.state in ('completed', 'partial'))
        into interrupted, finished
        from updated u where u.step_counts is not null and u.locked_at is not null;
        perform reactor.end_steps(interrupted, finished);
    end if;
    -- The common case of notify_feed, without its calls.
    by_xid := pg_sequence_last_value('reactor.feed_notified_by');
    if date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value('reactor.feed_notified_at')
            not between -1000 and 20
        or by_xid >= txid_current() or txid_status(by_xid) is distinct from 'committed'
    then
        perform reactor.notify_feed();
    end if;
    return null;
end
$$;
