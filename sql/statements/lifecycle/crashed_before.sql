-- Which of the jobs $1 ran in a worker process that died before: they may be the cause. Not those that must not start
-- again.
select distinct a.job_id as id
from reactor.attempts a join reactor.jobs j on j.id = a.job_id and not j.started_once
where a.job_id = any ($1::bigint[]) and a.outcome = 'crashed'
