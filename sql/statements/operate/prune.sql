-- Reads the next $3 jobs from the place $5 on (at first {}), and removes the pipelines that begin among them and whose
-- jobs all ended in one of the states $2 more than $1 seconds ago. $4: keep the current job of each scope. Steps,
-- attempts and dependencies are removed with their jobs; $6: all but the dependencies are archived first. $7: only
-- count. Continue with the returned place; NULL: done.
-- Calls reactor.prune (schema/functions/prune.sql).
select pipelines, jobs, place
from reactor.prune($1::float8, $2::text[], $3::int, $4::boolean, $5::jsonb, $6::boolean, $7::boolean)
