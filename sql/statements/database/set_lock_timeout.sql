-- Limits each wait for a lock to $1 milliseconds, until this transaction ends: the caller needs an answer.
select set_config('lock_timeout', ($1::int)::text, true)
