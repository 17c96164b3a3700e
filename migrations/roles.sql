-- Roles. Safe to run any number of times, also concurrently.
-- They belong to the whole server: the migration of another database may be creating the same ones at this moment.
do $roles$
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
end
$roles$;
