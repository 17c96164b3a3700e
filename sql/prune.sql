-- Removes up to $3 whole pipelines whose jobs all ended, in one of the states $2, more than $1 seconds ago. The newest run
-- of each scope stays if $4. Steps, attempts and dependencies go with their jobs.
select pipelines, jobs from reactor.prune($1::float8, $2::text[], $3::int, $4::boolean)
