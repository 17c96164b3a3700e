-- No statement of this transaction may take longer than $1 milliseconds.
select set_config('statement_timeout', ($1::int)::text, true)
