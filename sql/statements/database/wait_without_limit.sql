-- Until this transaction ends, waits for locks have no limit: a user or server may have a default for short statements.
select set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)
