-- Claims the job $1 for the worker $2 if it can run now; $3: the attempts that its handler registered. No row: another
-- worker has it, or it can't run now, and nothing has changed.
-- Calls reactor.claim_job (schema/functions/claim.sql).
select * from reactor.claim_job($1::bigint, $2::uuid, $3::int)
