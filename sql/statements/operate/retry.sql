-- Starts a new run of the finished jobs $1 and restores the dependants that were cancelled because of them. Returns all
-- jobs that will run again.
-- Calls reactor.retry (schema/functions/retry.sql).
select id, state from reactor.retry($1::bigint[])
