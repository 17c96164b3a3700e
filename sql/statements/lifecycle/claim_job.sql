-- Takes the job $1 for the worker $2 if it can be had now; $3: the attempts that its handler registered. No row: somebody
-- else has it, or it may not run now, and nothing has changed.
select * from reactor.claim($2::uuid, 1, null, null, array[$3::int], single => $1::bigint)
