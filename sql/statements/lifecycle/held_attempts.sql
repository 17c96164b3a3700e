-- The attempts that the worker $1 holds by the database. The worker stops those it lost, and releases those it does not
-- know of: a claim can commit although its reply was lost.
select j.id, j.attempt_id from reactor.jobs j
where j.worker_id = $1::uuid and j.state = 'running'
    and j.id in (select unnest(c.job_ids) from reactor.claims c where c.worker_id = $1::uuid)
order by j.id
