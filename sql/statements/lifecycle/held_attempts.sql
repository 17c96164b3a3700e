-- The attempts that the database says the worker $1 has, so that it can stop what it lost and give back what it does not
-- know of: a claim may commit although its answer was lost.
select j.id, j.attempt_id from reactor.jobs j where j.worker_id = $1::uuid and j.state = 'running' order by j.id
