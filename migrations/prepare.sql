-- The schema, and the right to act as its owner. Safe to run any number of times.
do $prepare$
begin
    -- The migrating user acts as the owner. From PostgreSQL 16 on, having created a role is not enough for that.
    if not pg_catalog.pg_has_role(session_user, 'reactor_owner', 'member')
        or (current_setting('server_version_num')::int >= 160000
            and not pg_catalog.pg_has_role(session_user, 'reactor_owner', 'set'))
    then
        execute format('grant reactor_owner to %I', session_user);
    end if;
    if pg_catalog.to_regnamespace('reactor') is null then
        create schema reactor authorization reactor_owner;
    end if;
end
$prepare$;
