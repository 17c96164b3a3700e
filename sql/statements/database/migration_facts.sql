-- What a migration needs to know about a database before it begins. `foreign_schema`: the owner of a schema `reactor`
-- that is not ours. `grants`: what an administrator must grant to a user that lacks the privileges.
select
    current_setting('transaction_read_only')::boolean as is_read_only,
    current_setting('server_encoding') as encoding,
    format('grant reactor_owner to %I;', session_user)
        || case when not has_database_privilege(session_user, current_database(), 'create') then
            format(E'\ngrant create on database %I to %I;', current_database(), session_user) else '' end as grants,
    array(select t.evtname::text from pg_event_trigger t where t.evtenabled <> 'D' order by 1) as event_triggers,
    (
        select pg_get_userbyid(n.nspowner)::text from pg_namespace n
        where n.nspname = 'reactor'
            and not exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'alembic_version')
            and (pg_get_userbyid(n.nspowner) <> 'reactor_owner'
                or exists (select from pg_class c where c.relnamespace = n.oid))
    ) as foreign_schema
