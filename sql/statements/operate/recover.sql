-- Takes the running job $1 from a dead worker, with a fresh quota. No row: it is not running, or its worker is alive.
-- Calls reactor.sweep (schema/functions/sweep.sql).
select id from reactor.sweep(1, single => $1::bigint)
