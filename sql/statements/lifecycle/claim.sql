-- Claims up to $2 due jobs for the worker $1, from the queues $3 (NULL: all), of the types $4 with the attempts $5 that
-- their handlers registered (NULL: 3), starting at the marks $6 (NULL: at the beginning), at most $7 of each queue
-- (NULL: any number). The columns are those of reactor.job.Job, in its order; a last row without an id says when to
-- claim again.
-- Calls reactor.claim (schema/functions/claim.sql).
select * from reactor.claim($1::uuid, $2::int, $3::text[], $4::text[], $5::int[], $6::jsonb, $7::int[])
