-- The engine's statements must see what committed while they waited for a lock. A database or user may have another
-- default.
select set_config('default_transaction_isolation', 'read committed', false)
where current_setting('default_transaction_isolation') <> 'read committed'
