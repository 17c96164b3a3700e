-- Continues the retry $2 with up to $1 jobs; for $3 seconds the pods leave the rest to the caller. Returns the jobs
-- that will run again, and after how many seconds to continue; 0: now, NULL: nothing is left.
-- Calls reactor.retry_more (schema/functions/retry.sql).
select ids, states, next_in_seconds from reactor.retry_more($1::int, $2::bigint, $3::float8)
