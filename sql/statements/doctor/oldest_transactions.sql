-- What holds back vacuum: while a transaction is open, no row version that died after its start can be removed, and
-- claims walk through all of them. Forgotten replication slots and prepared transactions have the same effect. $1: the
-- age in seconds from which a transaction is reported.
select
    format('session %s of user %s (%s, %s)', pid, usename, coalesce(nullif(application_name, ''), 'no name'), state)
        as holder,
    extract(epoch from clock_timestamp() - xact_start)::float8 as age_seconds,
    format('select pg_terminate_backend(%s)', pid) as remedy
from pg_stat_activity
where xact_start < clock_timestamp() - make_interval(secs => $1) and pid <> pg_backend_pid()
    and backend_type = 'client backend'
union all
select
    format('prepared transaction %L of user %s', gid, owner),
    extract(epoch from clock_timestamp() - prepared)::float8,
    format('rollback prepared %L', gid)
from pg_prepared_xacts
where prepared < clock_timestamp() - make_interval(secs => $1) and database = current_database()
union all
select
    format('unused replication slot %I', slot_name),
    null,
    format('select pg_drop_replication_slot(%L)', slot_name)
from pg_replication_slots
where not active and (xmin is not null or catalog_xmin is not null)
order by age_seconds desc nulls last
