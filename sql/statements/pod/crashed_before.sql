-- Which of these jobs were running before when a worker process died: it may be them.
select distinct a.job_id as id from reactor.attempts a where a.job_id = any ($1::bigint[]) and a.outcome = 'crashed'
