-- Which of the jobs $1 ran in a worker process that died before: they may be the cause.
select distinct a.job_id as id from reactor.attempts a where a.job_id = any ($1::bigint[]) and a.outcome = 'crashed'
