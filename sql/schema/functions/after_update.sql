-- What an update of jobs entails, whoever made it: one pass over the changed rows.
-- (A trigger with transition tables can't be for several events, nor for named columns.)

create function reactor.after_jobs_updated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ended bigint[];
    interrupted bigint[];
    runnable boolean;
    scopes_too boolean;
    freed text[];
begin
    -- Rows that had ended before may be among these; to resolve them again changes nothing.
    select
        array_agg(u.id) filter (where u.state in ('completed', 'partial', 'failed', 'cancelled')),
        array_agg(u.id) filter (where u.state in ('pending', 'failed', 'cancelled') and u.locked_at is not null),
        bool_or(u.state = 'pending' and not u.parked),
        bool_or(u.scope is not null and u.worker_id is null)
    into ended, interrupted, runnable, scopes_too
    from updated u;

    if ended is not null then
        if current_setting('transaction_isolation') <> 'read committed' and exists (
            select from updated u join before b on b.id = u.id
            where u.id = any (ended) and b.state in ('waiting', 'pending', 'running')
                and u.inserted_by <> pg_current_xact_id())
        then
            raise exception 'reactor: a job can''t be ended in a % transaction', current_setting('transaction_isolation')
                using errcode = 'feature_not_supported',
                hint = 'Its old snapshot does not show the jobs that wait for this one; use READ COMMITTED.';
        end if;
        -- A place in a queue with a limit is free.
        runnable := runnable or exists (
            select from reactor.queues q join updated u on u.queue = q.name where q.max_running is not null);
    end if;
    if scopes_too then
        -- A scope moves on when the job that held it is held no more, or the one that was let out will not run now.
        -- Grouped, not joined: the planner knows nothing about these tables' sizes, and would go through all pairs.
        select array_agg(s.scope) into freed
        from (
            select max(r.scope) as scope,
                bool_or(r.past and r.held) and not bool_or(not r.past and r.held)
                or bool_or(r.past and r.ready) and not bool_or(not r.past and (r.held or r.pending)) as moves_on
            from (
                select true as past, b.id, b.scope, b.worker_id is not null as held,
                    -- What this transaction inserted was never let out.
                    b.state = 'pending' and b.run_after is null and not b.parked
                        and b.inserted_by <> pg_current_xact_id() as ready,
                    false as pending
                from before b where b.scope is not null
                union all
                select false, u.id, u.scope, u.worker_id is not null, false, u.state = 'pending' and u.run_after is null
                from updated u where u.scope is not null
            ) r
            group by r.id
        ) s
        where s.moves_on;
    end if;
    -- Lock order: scopes before the rows of dependants, as in cancel.
    if freed is not null then
        perform reactor.lock_scopes(freed);
    end if;
    if ended is not null then
        perform reactor.resolve(ended);
    end if;
    if freed is not null then
        perform reactor.free_scopes(freed);
        -- A claim that met a ready job of the scope while we had its lock has passed it by.
        runnable := true;
    end if;
    if runnable then
        perform reactor.ring_jobs();
    end if;
    -- An attempt that ends without finishing its job leaves steps behind that run no more; a crashed one can't say so.
    if interrupted is not null then
        update reactor.steps s set state = 'pending', changed = pg_current_xact_id()
        where s.job_id = any (interrupted) and s.state = 'running';
    end if;
    perform reactor.ring_feed();
    return null;
end
$$;

create trigger after_update after update on reactor.jobs
    referencing old table as before new table as updated
    for each statement execute function reactor.after_jobs_updated();
