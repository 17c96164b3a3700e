-- The state of the server, as far as jobs depend on it: a full notification queue makes inserts fail, and an old
-- snapshot keeps dead rows in the way of claims. A role without pg_read_all_stats does not see the age in seconds of
-- other users' sessions.
select pg_notification_queue_usage() as notification_queue_usage,
    (select s.draining from reactor.settings s) as draining,
    (select coalesce(max(extract(epoch from clock_timestamp() - a.xact_start)), 0)::float8 from pg_stat_activity a
        where a.backend_type = 'client backend' and a.pid <> pg_backend_pid()) as oldest_transaction_seconds,
    (select coalesce(max(x.age), 0)::int8 from (
        select age(a.backend_xmin) from pg_stat_activity a where a.pid <> pg_backend_pid()
        union all select age(p.transaction) from pg_prepared_xacts p
        union all select greatest(age(r.xmin), age(r.catalog_xmin)) from pg_replication_slots r) x (age))
            as oldest_xmin_age
