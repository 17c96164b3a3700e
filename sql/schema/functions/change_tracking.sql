-- `changed_xid` is the transaction that last wrote a streamed row. Compared with a reader's snapshot it identifies
-- exactly the rows that the reader has not seen. Inserts take it from the column's default, and the engine's statements
-- set it; the trigger sets it for all other updates.

create or replace function reactor.set_changed() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.changed_xid := txid_current();
    return new;
end
$$;

-- For jobs. The engine writes valid values; a person may mistype one.
create or replace function reactor.check_update_by_hand(state text, progress real) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if state not in ('waiting', 'pending', 'running', 'completed', 'partial', 'failed', 'cancelled') then
        perform reactor.refuse(format('reactor: %L is not a state of a job', state),
            'Use waiting, pending, running, completed, partial, failed or cancelled.');
    end if;
    if progress not between 0 and 1 then
        perform reactor.refuse(format('reactor: progress %s is out of range', progress),
            'Use 0 (nothing done) to 1 (all done).');
    end if;
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
