-- Starts a new run of the finished jobs $1 and restores the dependants that were cancelled because of them, up to 1,000
-- jobs. Returns them, and leaves the rest in reactor.retries.
-- Calls reactor.retry (schema/functions/retry.sql).
select id, state from reactor.retry($1::bigint[])
