-- Takes the lock of migrations if it is free: one migration of a database runs at a time. It belongs to the session,
-- because one migration may need several transactions.
select pg_try_advisory_lock($1)
