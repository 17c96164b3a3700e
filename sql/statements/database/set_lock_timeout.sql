-- Until this transaction ends, a lock is waited for no longer than $1 milliseconds: whoever asks must get an answer.
select set_config('lock_timeout', ($1::int)::text, true)
