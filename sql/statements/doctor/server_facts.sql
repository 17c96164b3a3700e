-- What `reactor doctor` needs to know about a server, in one round trip. The time is the last column, so that it is as
-- fresh as possible when the reply leaves.
select
    current_setting('server_version') as version,
    pg_is_in_recovery() as is_standby,
    current_setting('transaction_read_only')::boolean as is_read_only,
    current_setting('server_encoding') as encoding,
    session_user::text as user_name,
    pg_backend_pid() as backend_pid,
    pg_notification_queue_usage() as notification_queue_usage,
    has_database_privilege(current_database(), 'create') as may_create_schema,
    (select rolcreaterole or rolsuper from pg_roles where rolname = session_user) as may_create_roles,
    array(
        select rolname::text from pg_roles
        where rolname in ('reactor_owner', 'reactor_worker', 'reactor_producer', 'reactor_viewer')
            and pg_has_role(session_user, oid, 'member')
        order by rolname
    ) as member_of,
    clock_timestamp() as now
