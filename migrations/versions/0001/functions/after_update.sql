-- What follows any update of jobs, by the engine or by hand, in one pass over the changed rows: resolves dependencies,
-- frees scopes, resets interrupted steps and notifies.
create or replace function reactor.after_jobs_updated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ended bigint[];
    interrupted bigint[];
    runnable boolean;
    has_scopes boolean;
    freed text[];
begin
    -- Rows that had ended before may be among these; resolving them again changes nothing.
    select
        array_agg(u.id) filter (where u.state in ('completed', 'partial', 'failed', 'cancelled')),
        array_agg(u.id) filter (where u.state in ('pending', 'failed', 'cancelled') and u.locked_at is not null),
        bool_or(u.state = 'pending' and not u.parked),
        bool_or(u.scope is not null and u.worker_id is null)
    into ended, interrupted, runnable, has_scopes
    from updated u;

    if ended is not null then
        if current_setting('transaction_isolation') <> 'read committed' and exists (
            select from updated u join before b on b.id = u.id
            where u.id = any (ended) and b.state in ('waiting', 'pending', 'running')
                and u.inserted_xid <> txid_current())
        then
            raise exception 'reactor: a job can''t be ended in a % transaction',
                current_setting('transaction_isolation')
                using errcode = 'feature_not_supported',
                hint = 'Use READ COMMITTED: the transaction''s snapshot may not show all jobs that wait for this one.';
        end if;
        -- A limited queue has capacity again.
        runnable := runnable or exists (
            select from reactor.queues q join updated u on u.queue = q.name where q.max_running is not null);
    end if;
    if has_scopes then
        -- A scope is freed when no worker holds its job any more, or when the job that was unparked will not run now.
        -- Grouped, not joined: the planner does not know the sizes of transition tables and would compare all pairs.
        select array_agg(s.scope) into freed
        from (
            select max(r.scope) as scope,
                bool_or(r.past and r.held) and not bool_or(not r.past and r.held)
                or bool_or(r.past and r.ready) and not bool_or(not r.past and (r.held or r.pending)) as is_freed
            from (
                select true as past, b.id, b.scope, b.worker_id is not null as held,
                    -- Jobs that this transaction inserted were never unparked.
                    b.state = 'pending' and b.run_after is null and not b.parked
                        and b.inserted_xid <> txid_current() as ready,
                    false as pending
                from before b where b.scope is not null
                union all
                select false, u.id, u.scope, u.worker_id is not null, false, u.state = 'pending' and u.run_after is null
                from updated u where u.scope is not null
            ) r
            group by r.id
        ) s
        where s.is_freed;
    end if;
    if ended is not null then
        perform reactor.resolve_dependencies(ended);
    end if;
    if freed is not null then
        perform reactor.free_scopes(freed);
        -- A claim that found a ready job of the scope while we held its lock has skipped it.
        runnable := true;
    end if;
    if runnable then
        perform reactor.notify_jobs();
    end if;
    -- An attempt that ends without finishing its job leaves steps in the state running; a crashed one can't reset them.
    if interrupted is not null then
        update reactor.steps s set state = 'pending', changed_xid = txid_current()
        where s.job_id = any (interrupted) and s.state = 'running';
    end if;
    perform reactor.notify_feed();
    return null;
end
$$;
