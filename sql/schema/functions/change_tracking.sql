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
