-- Writes how attempts ended: jobs $1 in order, attempts $2, outcomes $3 (completed, partial, failed, error, snoozed), with
-- result, error, message, delay and number of children. $9: how many milliseconds to wait for a lock (NULL: as is set).
-- What comes back was written, what does not was stale.
select id, state
from reactor.settle($1::bigint[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::text[], $7::float8[], $8::int[], $9::int)
