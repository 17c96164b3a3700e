-- The engine's statements must see what committed while they waited for a lock. A database or user may have another
-- default. Set only in a session of our own: $1 is the process that the connection was given at its start, and behind a
-- pooler another one answers, whose session belongs to other clients too. Returns whether that is so.
select pg_backend_pid() <> $1::int as is_pooled,
    case when pg_backend_pid() = $1::int and current_setting('default_transaction_isolation') <> 'read committed'
        then set_config('default_transaction_isolation', 'read committed', false) end
