-- The state of the job $1, with its result or error, for a client that waits for its end.
select j.state, j.result, j.error from reactor.jobs j where j.id = $1::bigint
