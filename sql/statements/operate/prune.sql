-- Looks through the next $3 jobs after the id $5, and removes the whole pipelines among them whose jobs all ended, in one of the
-- states $2, more than $1 seconds ago. The newest run of each scope stays if $4. Steps, attempts and dependencies go with
-- their jobs; if $6 all but the dependencies goes to the archive. If $7 they are only counted. Go on with last_id; NULL: all done.
select pipelines, jobs, last_id
from reactor.prune($1::float8, $2::text[], $3::int, $4::boolean, $5::bigint, $6::boolean, $7::boolean)
