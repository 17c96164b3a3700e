-- Reads the next $3 jobs after the id $5, and removes the pipelines among them whose jobs all ended in one of the
-- states $2 more than $1 seconds ago. $4: keep the current job of each scope. Steps, attempts and dependencies are
-- removed with their jobs; $6: all but the dependencies are archived first. $7: only count. Continue with last_id;
-- NULL: done.
-- Calls reactor.prune (schema/functions/prune.sql).
select pipelines, jobs, last_id
from reactor.prune($1::float8, $2::text[], $3::int, $4::boolean, $5::bigint, $6::boolean, $7::boolean)
