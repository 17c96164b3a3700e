-- Waits for the lock of migrations.
select pg_advisory_lock($1)
