-- `changed` is the transaction that last wrote a streamed row: with the reader's snapshot it tells exactly what the reader
-- has not seen. The engine's statements set it themselves; these triggers put it right for everybody else.

create function reactor.touch() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.changed := pg_current_xact_id();
    return new;
end
$$;

create trigger touch before insert or update on reactor.jobs
    for each row when (new.changed is distinct from pg_current_xact_id()) execute function reactor.touch();
create trigger touch before insert or update on reactor.steps
    for each row when (new.changed is distinct from pg_current_xact_id()) execute function reactor.touch();

-- A job that was due when it was inserted lies among the ready ones, not among the scheduled.
create function reactor.due_already() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if new.run_after <= clock_timestamp() then
        new.run_after := null;
    end if;
    return new;
end
$$;
create trigger due_already before insert on reactor.jobs
    for each row when (new.run_after is not null) execute function reactor.due_already();

-- The window can't be part of the unique index, so whoever comes after it takes the key from its holder first.
create function reactor.release_expired_key() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update reactor.jobs j set idempotency_key = null, changed = pg_current_xact_id()
    where j.job_type = new.job_type and j.idempotency_key = new.idempotency_key and j.state <> 'cancelled'
        and j.created_at < clock_timestamp() - (select s.idempotency_window from reactor.settings s);
    return new;
end
$$;
create trigger release_expired_key before insert on reactor.jobs
    for each row when (new.idempotency_key is not null) execute function reactor.release_expired_key();
