-- What an update of jobs entails, whoever made it: one pass over the changed rows.
-- (A trigger with transition tables can't be for several events, nor for named columns.)

create function reactor.after_jobs_updated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ended bigint[];
    freed text[];
    runnable boolean;
begin
    select
        array_agg(u.id) filter (where u.state in ('completed', 'partial', 'failed', 'cancelled')
            and b.state in ('waiting', 'pending', 'running')),
        -- A scope moves on when the job that held it is held no more, or the one that was let out will not run now.
        array_agg(u.scope) filter (where u.scope is not null and u.worker_id is null and (
            b.worker_id is not null
            or b.state = 'pending' and not b.parked and b.run_after is null
                and (u.state <> 'pending' or u.run_after is not null))),
        bool_or(u.state = 'pending' and not u.parked
            and (b.state <> 'pending' or b.parked or b.run_after is distinct from u.run_after))
    into ended, freed, runnable
    from updated u join before b on b.id = u.id;

    if ended is not null then
        if current_setting('transaction_isolation') <> 'read committed'
            and exists (select from reactor.jobs j where j.id = any (ended) and j.inserted_by <> pg_current_xact_id())
        then
            raise exception 'reactor: a job can''t be ended in a % transaction', current_setting('transaction_isolation')
                using errcode = 'feature_not_supported',
                hint = 'Its old snapshot does not show the jobs that wait for this one; use READ COMMITTED.';
        end if;
        perform reactor.resolve(ended);
        -- A place in a queue with a limit is free.
        runnable := runnable or exists (
            select from reactor.queues q join updated u on u.queue = q.name where q.max_running is not null);
    end if;
    if freed is not null then
        perform reactor.free_scopes(freed);
    end if;
    if runnable then
        perform reactor.ring_jobs();
    end if;
    perform reactor.ring_feed();
    return null;
end
$$;

create trigger after_update after update on reactor.jobs
    referencing old table as before new table as updated
    for each statement execute function reactor.after_jobs_updated();
