-- What functions/scopes.sql locks, and what it leaves for later.

-- Rows and not advisory locks: anyone who may connect can take an advisory lock, and many of them fill the lock table
-- of the server.
create table reactor.scope_locks (
    bucket int primary key
);
comment on table reactor.scope_locks is 'engine only: one row per lock; a scope belongs to one of them by its hash.';
insert into reactor.scope_locks (bucket) select generate_series(0, 4095);

create table reactor.freed_scopes (
    scope text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table reactor.freed_scopes is
    'engine only: scopes that became free while another transaction had locked them; '
    'the next claim unparks their jobs.';
-- Without a primary key, deletes would be refused where logical replication publishes all tables.
alter table reactor.freed_scopes replica identity full;
