-- Takes back at most $1 jobs that dead workers hold. After an outage, workers that are alive have time to return first.
-- Calls reactor.sweep (schema/functions/sweep.sql).
select id, state from reactor.sweep($1::int, witnessed => true)
