-- The states of those of the jobs $1 that exist.
select j.id, j.state from reactor.jobs j where j.id = any ($1::bigint[]) order by j.id
