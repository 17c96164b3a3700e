-- Limits each statement of this transaction to $1 milliseconds.
select set_config('statement_timeout', ($1::int)::text, true)
