-- `changed` is the transaction that last wrote a streamed row. Compared with a reader's snapshot it identifies exactly
-- the rows that the reader has not seen. Inserts take it from the column's default, and the engine's statements set it;
-- the trigger sets it for all other updates.

create or replace function reactor.set_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.changed := pg_current_xact_id();
    return new;
end
$$;

-- Identifies one history of one database: a transaction number means nothing in another database, nor after a restore
-- or a failover. (A standby has no timeline to read; streams are not served from one.)
create or replace function reactor.epoch() returns text
language sql stable
return pg_catalog.to_hex(pg_catalog.hashtextextended(pg_catalog.concat_ws(' ',
    (select c.system_identifier from pg_catalog.pg_control_system() c),
    (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()),
    case when not pg_catalog.pg_is_in_recovery()
        then pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) end), 0));
comment on function reactor.epoch is
    'Changes when transaction numbers start over: another server, a restore, a failover.';
