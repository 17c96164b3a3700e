-- Takes back at most $1 jobs that dead workers hold.
-- Calls reactor.sweep (schema/functions/sweep.sql).
select id, state from reactor.sweep($1::int)
