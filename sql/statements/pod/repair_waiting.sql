-- Repairs up to $1 jobs that wait although nothing they need is unfinished. Each job it returns is the trace of a bug.
-- Calls reactor.repair_waiting (schema/functions/repair_waiting.sql).
select id from reactor.repair_waiting($1::int) as id
