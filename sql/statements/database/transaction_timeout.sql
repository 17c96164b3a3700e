-- The transaction_timeout of this user's sessions, in seconds; 0: none, as in all servers before PostgreSQL 17.
select coalesce(extract(epoch from current_setting('transaction_timeout', true)::interval), 0)::float8
