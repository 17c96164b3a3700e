-- Ends attempts: jobs $1 by id, attempts $2, outcomes $3 (the function's file lists them), with results, errors,
-- messages, delays and numbers of children. $9: the milliseconds to wait for a lock (NULL: the server's setting). An
-- attempt that is not returned was stale.
-- Calls reactor.settle (schema/functions/settle.sql).
select id, state
from reactor.settle($1::bigint[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::text[], $7::float8[], $8::int[],
    $9::int)
