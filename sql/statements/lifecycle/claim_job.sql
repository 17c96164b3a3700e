-- Claims the job $1 for the worker $2 if it can run now; $3: the attempts that its handler registered. No row: another
-- worker has it, or it can't run now, and nothing has changed.
-- Calls reactor.claim (schema/functions/claim.sql).
select * from reactor.claim($2::uuid, 1, null, null, array[$3::int], single => $1::bigint)
