-- How the job $1 ended, for whoever waits for it.
select j.state::text, j.result, j.error from reactor.jobs j where j.id = $1::bigint
