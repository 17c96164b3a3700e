-- Roles and schema. Safe to run any number of times, also concurrently.
-- Roles belong to the whole server: the migration of another database may be creating the same ones at this moment.
do $prepare$
declare
    name text;
begin
    foreach name in array array['reactor_owner', 'reactor_worker', 'reactor_producer', 'reactor_viewer'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = name) then
            begin
                execute format('create role %I nologin', name);
            exception
                when duplicate_object or unique_violation then null;
            end;
        end if;
    end loop;
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
