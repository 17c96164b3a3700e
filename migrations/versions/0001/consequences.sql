-- What an update of jobs entails for other jobs: one pass over the changed rows, whoever changed them.
-- (A trigger with a transition table can't be for several events, nor for named columns.)

create function reactor.after_jobs_updated() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ended bigint[];
    freed text[];
begin
    -- Freed: the job that held its scope last is not held any more; or a job that had been let out of its scope's queue
    -- will not run now. Some of these were so before: looking again changes nothing.
    select
        array_agg(u.id) filter (where u.state in ('completed', 'partial', 'failed', 'cancelled')),
        array_agg(u.scope) filter (where u.scope is not null and u.worker_id is null
            and (u.is_current or u.state = 'cancelled' or u.state = 'pending' and u.run_after is not null))
    into ended, freed
    from updated u;
    if ended is not null then
        perform reactor.resolve(ended);
    end if;
    if freed is not null then
        perform reactor.free_scopes(freed);
    end if;
    return null;
end
$$;

create trigger after_update after update on reactor.jobs
    referencing new table as updated for each statement execute function reactor.after_jobs_updated();
