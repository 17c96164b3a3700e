-- Rules for new jobs beyond the checks of their columns. The trigger's condition skips the many rows that need none.

create or replace function reactor.before_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Already due: it belongs into the index of ready jobs, not of scheduled ones.
    if new.run_after <= clock_timestamp() then
        new.run_after := null;
    end if;
    if new.exclusive and new.scope is null then
        perform reactor.refuse('reactor: the job is exclusive and has no scope',
            'Set scope to what must not run twice, or leave exclusive false.');
    end if;
    -- The window can't be part of the unique index, so a job that comes after the window takes the key from its holder
    -- first.
    if new.idempotency_key is not null then
        update reactor.jobs j set idempotency_key = null, changed = pg_current_xact_id()
        where j.job_type = new.job_type and j.idempotency_key = new.idempotency_key and j.state <> 'cancelled'
            and j.created_at < clock_timestamp() - (select s.idempotency_window from reactor.settings s);
    end if;
    return new;
end
$$;
