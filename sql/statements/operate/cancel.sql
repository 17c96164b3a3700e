-- Cancels those of the jobs $1 that are unfinished, for the reason $2. Returns them with their previous states.
-- Calls reactor.cancel (schema/functions/cancel.sql).
select id, was from reactor.cancel($1::bigint[], $2::text)
