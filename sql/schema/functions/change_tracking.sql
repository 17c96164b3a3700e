-- `changed` is the transaction that last wrote a streamed row: with the reader's snapshot it tells exactly what the reader
-- has not seen. Inserts have it from the column's default, the engine's statements set it themselves; this trigger puts
-- it right for everybody else.

create function reactor.touch() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.changed := pg_current_xact_id();
    return new;
end
$$;

create trigger touch before update on reactor.jobs
    for each row when (new.changed <> pg_current_xact_id()) execute function reactor.touch();
create trigger touch before update on reactor.steps
    for each row when (new.changed <> pg_current_xact_id()) execute function reactor.touch();

-- Which history of which database this is: a transaction's number means nothing in another one, nor after a restore or a
-- failover. (On a standby there is no timeline to be asked for; nobody streams from one.)
create function reactor.epoch() returns text
language sql stable
return pg_catalog.to_hex(pg_catalog.hashtextextended(pg_catalog.concat_ws(' ',
    (select c.system_identifier from pg_catalog.pg_control_system() c),
    (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()),
    case when not pg_catalog.pg_is_in_recovery()
        then pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) end), 0));

-- What a new job's row needs beyond its columns' own checks; few rows do.
create function reactor.before_insert() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- Due already: it lies among the ready ones, not among the scheduled.
    if new.run_after <= clock_timestamp() then
        new.run_after := null;
    end if;
    if new.exclusive and new.scope is null then
        perform reactor.refuse('reactor: the job is exclusive and has no scope',
            'Name in scope what must not run twice, or leave exclusive false.');
    end if;
    -- The window can't be part of the unique index, so whoever comes after it takes the key from its holder first.
    if new.idempotency_key is not null then
        update reactor.jobs j set idempotency_key = null, changed = pg_current_xact_id()
        where j.job_type = new.job_type and j.idempotency_key = new.idempotency_key and j.state <> 'cancelled'
            and j.created_at < clock_timestamp() - (select s.idempotency_window from reactor.settings s);
    end if;
    return new;
end
$$;
create trigger before_insert before insert on reactor.jobs
    for each row when (new.run_after is not null or new.exclusive or new.idempotency_key is not null)
    execute function reactor.before_insert();
